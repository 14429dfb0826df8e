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
/** The file that exists while all processes of a container are ready. */
const SERVING_FILE = '/var/lib/pie/run/serving';

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

const COMPOSE_FILES = ['infra/container/compose.yaml', 'infra/container/compose.machines.yaml'].map(
  (file): Compose => parse(read(file), { merge: true }),
);

/** The variables that the Dockerfile sets. */
const imageVariables = (): Record<string, string> => {
  const block = /^ENV ((?:.*\\\n)*.*)$/m.exec(DOCKERFILE)?.[1] ?? '';
  return Object.fromEntries([...block.matchAll(/(\w+)=(\S+)/g)].map(([, name = '', value = '']) => [name, value]));
};

/** The pie.toml of docs/containers.md. */
const [, CONTAINERS_TOML = ''] = /^cat > secrets\/pie.toml <<END\n(.*?)^END$/ms.exec(read('docs/containers.md')) ?? [];

/**
 * Configuration of a container with the image's variables and these. The home lies in a folder of this test. If `PIE_CONFIG` is set, so does the
 * pie.toml, with the text `toml`.
 */
function configOf(variables: Readonly<Record<string, string>>, toml = CONTAINERS_TOML) {
  const file = path.join(home, 'pie.toml');
  writeFileSync(file, toml);
  const movedConfig = variables.PIE_CONFIG === undefined ? {} : { PIE_CONFIG: file };
  return loadConfig({ ...imageVariables(), ...variables, ...movedConfig, PIE_HOME: path.join(home, 'home') });
}

/** Options that a container needs for the namespaces of its sandboxes. */
const SANDBOX_OPTIONS = ['seccomp=./seccomp.json', 'apparmor=unconfined', 'systempaths=unconfined'];

test('each service of the compose files is confined, and each machine among them has a valid configuration and time to drain', () => {
  for (const { services, secrets = {}, volumes } of COMPOSE_FILES) {
    for (const [name, service] of Object.entries(services)) {
      for (const secret of service.secrets ?? [])
        assert.ok(
          (typeof secret === 'string' ? secret : secret.source) in secrets,
          `${name}: ${JSON.stringify(secret)}`,
        );
      for (const volume of service.volumes) assert.ok((volume.split(':')[0] ?? '') in volumes, `${name}: ${volume}`);
      assert.deepEqual([service.cap_drop, service.privileged], [['ALL'], undefined], name);
      assert.ok(service.security_opt.includes('no-new-privileges:true'), name);
      // The rest is about machines of the platform. Redis is none, and has no environment.
      if (service.environment === undefined) continue;
      assertKnownVariables(Object.keys(service.environment));
      const config = configOf(service.environment);
      assert.equal(config.machine.name, name);
      const { address, roles } = config.machine;
      // Other machines connect to a runtime or a GPU host, but not to a gateway. The container with all roles is the only machine.
      const isReachedByOthers = roles.length === 1 && roles[0] !== 'gateway';
      assert.equal(address, isReachedByOthers ? name : undefined);
      const graceMs = Number(/^(\d+)s$/.exec(service.stop_grace_period)?.[1]) * 1000;
      assert.ok(graceMs > stopBoundMs(config), `${name}: ${graceMs} ms for a stop of ${stopBoundMs(config)} ms`);
      const relaxedOptions = service.security_opt.filter((option) => SANDBOX_OPTIONS.includes(option));
      assert.deepEqual(relaxedOptions, roles.includes('runtime') ? SANDBOX_OPTIONS : [], name);
    }
  }
});

test('the variables, command options and files that the Dockerfile names exist', () => {
  assertKnownVariables(Object.keys(imageVariables()).filter((name) => name.startsWith('PIE_')));
  // The configuration accepts the image's variables.
  assert.equal(configOf({}).home, path.join(home, 'home'));
  assert.match(DOCKERFILE, /^ENTRYPOINT \["tini", "--", "pie"\]\nCMD \["up", "--no-story"\]$/m);
  assert.match(read('infra/up.ts'), /'no-story': \{ type: 'boolean'/);
  assert.match(DOCKERFILE, /^HEALTHCHECK .* CMD test -e "\$PIE_HOME\/run\/serving"$/m);
  assert.equal(path.join(loadConfig({ PIE_HOME: '/var/lib/pie' }).runDirectory, 'serving'), SERVING_FILE);
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
  /** Files of a ConfigMap. */
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: {
    /** Name of a StatefulSet's Service. */
    readonly serviceName?: string;
    /** Labels of the pods that a Service selects. */
    readonly selector?: Readonly<Record<string, string>>;
    /** Pods of a Deployment or a StatefulSet. */
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

test('the Services of docs/kubernetes.md select its pods, and one of them is the Service of its StatefulSet', () => {
  const all = resources();
  const services = all.filter(({ kind }) => kind === 'Service');
  const podLabels = all.map(({ spec }) => spec?.template?.metadata.labels).filter((each) => each !== undefined);
  assert.deepEqual(
    services.map(({ spec }) => spec?.selector),
    podLabels,
  );
  const statefulSetServices = all.flatMap(({ spec }) => spec?.serviceName ?? []);
  assert.deepEqual(statefulSetServices, ['pie-runtime']);
  assert.ok(services.some(({ metadata }) => metadata.name === 'pie-runtime'));
});

test('the pods of docs/kubernetes.md have known variables, existing probes, and time for `preStop` and the stop', () => {
  const all = resources();
  const pods = all.flatMap(({ spec }) => spec?.template?.spec ?? []);
  assert.equal(pods.length, 2);
  const routes = read('gateway/app/routes/system.ts');
  for (const { hostUsers, terminationGracePeriodSeconds, containers, volumes } of pods) {
    const [container] = containers;
    assert.ok(container);
    assertKnownVariables(container.env.map(({ name }) => name));
    // Kubernetes takes these values from the pod and from a secret.
    const podVariables = { PIE_MACHINE: 'pie-0', PIE_ADDRESS: '10.0.0.5', REDIS_URL: 'redis://redis' };
    const fixedVariables: Record<string, string> = Object.fromEntries(
      container.env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
    );
    const file = path.posix.parse(fixedVariables.PIE_CONFIG ?? '');
    const mount = container.volumeMounts.find(({ mountPath }) => mountPath === file.dir);
    const volume = volumes.find(({ name }) => name === mount?.name);
    const configMap = all.find(
      ({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === volume?.configMap?.name,
    );
    const toml = configMap?.data?.[file.base];
    assert.ok(toml, `no ConfigMap has ${fixedVariables.PIE_CONFIG}`);
    const config = configOf({ ...podVariables, ...fixedVariables }, toml);
    const pauseMs = (container.lifecycle?.preStop.sleep.seconds ?? 0) * 1000;
    assert.ok(terminationGracePeriodSeconds * 1000 > pauseMs + stopBoundMs(config));
    for (const name of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
      const { httpGet, exec } = container[name] ?? {};
      if (httpGet) assert.ok(routes.includes(`path: '${httpGet.path}'`), httpGet.path);
      if (exec) assert.deepEqual(exec.command, ['test', '-e', SERVING_FILE]);
    }
    const isRuntime = config.machine.roles.includes('runtime');
    assert.deepEqual(
      [hostUsers, container.securityContext.procMount],
      isRuntime ? [false, 'Unmasked'] : [undefined, undefined],
    );
    assert.equal(container.securityContext.privileged, undefined);
  }
});
