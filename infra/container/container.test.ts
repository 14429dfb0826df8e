import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { loadConfig } from '../config.ts';
import { ROOT } from '../install.ts';
import { stopBoundMs } from '../testing/stop-bound.ts';
import { assertKnownVariables } from '../testing/variables.ts';

const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const DOCKERFILE = read('infra/container/Dockerfile');
const SERVING = '/var/lib/pie/run/serving';

const home = mkdtempSync(path.join(os.tmpdir(), 'pie-container-'));
after(() => rmSync(home, { recursive: true }));

interface Service {
  readonly environment?: Readonly<Record<string, string>>;
  readonly stop_grace_period: string;
  readonly cap_drop: readonly string[];
  readonly security_opt: readonly string[];
  readonly secrets?: readonly (string | { readonly source: string })[];
  readonly volumes: readonly string[];
  readonly privileged?: boolean;
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets?: object;
  readonly volumes: object;
}

const COMPOSE = ['infra/container/compose.yaml', 'infra/container/compose.machines.yaml'].map(
  (file): Compose => parse(read(file), { merge: true }),
);

/** The variables of the images. */
const imageVariables = (): Record<string, string> => {
  const block = /^ENV ((?:.*\\\n)*.*)$/m.exec(DOCKERFILE)?.[1] ?? '';
  return Object.fromEntries([...block.matchAll(/(\w+)=(\S+)/g)].map(([, name = '', value = '']) => [name, value]));
};

/** The pie.toml of docs/containers.md. */
const [, CONTAINERS_TOML = ''] = /^cat > secrets\/pie.toml <<END\n(.*?)^END$/ms.exec(read('docs/containers.md')) ?? [];

/** Configuration of a container, with its home in a folder of this test and `text` as the pie.toml if `PIE_CONFIG` names one. */
function configOf(variables: Readonly<Record<string, string>>, text = CONTAINERS_TOML) {
  const file = path.join(home, 'pie.toml');
  writeFileSync(file, text);
  const ownConfig = variables.PIE_CONFIG === undefined ? {} : { PIE_CONFIG: file };
  return loadConfig({ ...imageVariables(), ...variables, ...ownConfig, PIE_HOME: path.join(home, 'home') });
}

const NEEDED_BY_SANDBOXES = ['seccomp=./seccomp.json', 'apparmor=unconfined', 'systempaths=unconfined'];

test('the services of the compose files are machines that the configuration accepts, with time for their drain', () => {
  for (const { services, secrets = {}, volumes } of COMPOSE) {
    for (const [name, service] of Object.entries(services)) {
      for (const secret of service.secrets ?? [])
        assert.ok(
          (typeof secret === 'string' ? secret : secret.source) in secrets,
          `${name}: ${JSON.stringify(secret)}`,
        );
      for (const volume of service.volumes) assert.ok((volume.split(':')[0] ?? '') in volumes, `${name}: ${volume}`);
      assert.deepEqual([service.cap_drop, service.privileged], [['ALL'], undefined], name);
      assert.ok(service.security_opt.includes('no-new-privileges:true'), name);
      if (service.environment === undefined) continue;
      assertKnownVariables(Object.keys(service.environment));
      const config = configOf(service.environment);
      assert.equal(config.machine.name, name);
      const { address, roles } = config.machine;
      assert.equal(address, roles.length === 1 && roles[0] !== 'gateway' ? name : undefined);
      const graceMs = Number(/^(\d+)s$/.exec(service.stop_grace_period)?.[1]) * 1000;
      assert.ok(graceMs > stopBoundMs(config), `${name}: ${graceMs} ms for ${stopBoundMs(config)} ms`);
      const relaxedOptions = service.security_opt.filter((option) => NEEDED_BY_SANDBOXES.includes(option));
      assert.deepEqual(relaxedOptions, roles.includes('runtime') ? NEEDED_BY_SANDBOXES : [], name);
    }
  }
});

test('the image has the variables, the command and the files that it names', () => {
  assertKnownVariables(Object.keys(imageVariables()).filter((name) => name.startsWith('PIE_')));
  assert.equal(configOf({}).home, path.join(home, 'home'));
  assert.match(DOCKERFILE, /^ENTRYPOINT \["tini", "--", "pie"\]\nCMD \["up", "--no-story"\]$/m);
  assert.match(read('infra/up.ts'), /'no-story': \{ type: 'boolean'/);
  assert.match(DOCKERFILE, /^HEALTHCHECK .* CMD test -e "\$PIE_HOME\/run\/serving"$/m);
  assert.equal(path.join(loadConfig({ PIE_HOME: '/var/lib/pie' }).runDirectory, 'serving'), SERVING);
  for (const [, files = ''] of DOCKERFILE.matchAll(/^COPY (?!--from)(.*) \S+$/gm))
    for (const file of files.split(' ')) assert.ok(existsSync(path.join(ROOT, file)), file);
});

interface Pod {
  readonly volumes: readonly { readonly name: string; readonly configMap?: { readonly name: string } }[];
  readonly hostUsers?: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly containers: readonly {
    readonly env: readonly { readonly name: string; readonly value?: string }[];
    readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
    readonly securityContext: Readonly<Record<string, unknown>>;
    readonly [probe: `${string}Probe`]: {
      readonly httpGet?: { readonly path: string };
      readonly exec?: { readonly command: readonly string[] };
    };
  }[];
}

interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  /** Of a ConfigMap. */
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: {
    readonly serviceName?: string;
    /** Of a Service. */
    readonly selector?: Readonly<Record<string, string>>;
    readonly template?: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: Pod;
    };
  };
}

/** The manifests of docs/kubernetes.md. */
function resources(): Resource[] {
  const [, text = ''] = /^```yaml\n(.*?)^```$/ms.exec(read('docs/kubernetes.md')) ?? [];
  return parseAllDocuments(text).map((document): Resource => document.toJS());
}

test('the Services of docs/kubernetes.md select its pods, and its StatefulSet has one', () => {
  const all = resources();
  const services = all.filter(({ kind }) => kind === 'Service');
  const labels = all.map(({ spec }) => spec?.template?.metadata.labels).filter((each) => each !== undefined);
  assert.deepEqual(
    services.map(({ spec }) => spec?.selector),
    labels,
  );
  const named = all.flatMap(({ spec }) => spec?.serviceName ?? []);
  assert.deepEqual(named, ['pie-runtime']);
  for (const name of named) assert.ok(services.some(({ metadata }) => metadata.name === name));
});

test('the pods of docs/kubernetes.md have known variables, existing probes and time for pause and drain', () => {
  const all = resources();
  const pods = all.flatMap(({ spec }) => spec?.template?.spec ?? []);
  assert.equal(pods.length, 2);
  const routes = read('gateway/app/routes/system.ts');
  for (const { hostUsers, terminationGracePeriodSeconds, containers, volumes } of pods) {
    const [container] = containers;
    assert.ok(container);
    assertKnownVariables(container.env.map(({ name }) => name));
    const podVariables = { PIE_MACHINE: 'pie-0', PIE_ADDRESS: '10.0.0.5', REDIS_URL: 'redis://redis' };
    const fixedVariables: Record<string, string> = Object.fromEntries(
      container.env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
    );
    const file = path.posix.parse(fixedVariables.PIE_CONFIG ?? '');
    const mount = container.volumeMounts.find(({ mountPath }) => mountPath === file.dir);
    const volume = volumes.find(({ name }) => name === mount?.name);
    const map = all.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === volume?.configMap?.name);
    const toml = map?.data?.[file.base];
    assert.ok(toml, `no ConfigMap has ${fixedVariables.PIE_CONFIG}`);
    const config = configOf({ ...podVariables, ...fixedVariables }, toml);
    const pauseMs = (container.lifecycle?.preStop.sleep.seconds ?? 0) * 1000;
    assert.ok(terminationGracePeriodSeconds * 1000 > pauseMs + stopBoundMs(config));
    for (const name of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
      const { httpGet, exec } = container[name] ?? {};
      if (httpGet) assert.ok(routes.includes(`path: '${httpGet.path}'`), httpGet.path);
      if (exec) assert.deepEqual(exec.command, ['test', '-e', SERVING]);
    }
    const isRuntime = config.machine.roles.includes('runtime');
    assert.deepEqual(
      [hostUsers, container.securityContext.procMount],
      isRuntime ? [false, 'Unmasked'] : [undefined, undefined],
    );
    assert.equal(container.securityContext.privileged, undefined);
  }
});
