import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { ConfigError, loadConfig } from './config.ts';
import { buildsAtOnce, redisShareMb, runtimeShareMb } from './machine-shares.ts';
import { machineProcesses, privateRedis } from './processes.ts';
import { redisOptions } from './redis.ts';
import { shownRedis } from './redis-settings.ts';

const home = mkdtempSync(path.join(os.tmpdir(), 'pie-config-'));
after(() => rmSync(home, { recursive: true, force: true }));

function withToml(text: string, environment: NodeJS.ProcessEnv = {}) {
  writeFileSync(path.join(home, 'pie.toml'), text);
  return loadConfig({ PIE_HOME: home, ...environment });
}

test('each of several GPU hosts has all models, and each CUDA model gets its own card, counted from its device', () => {
  const { gpuHosts, spread } = withToml(
    `[gpu_host]\ncount = 3\nspread = "invocation"\n[[model]]\nname = "a"\nbackend = "cuda"\ndevice = 1\n[[model]]\nname = "b"`,
  );
  assert.equal(spread, 'invocation');
  assert.deepEqual(
    gpuHosts.map(({ name, models }) => [name, ...models.map((model) => model.device)]),
    [
      ['gpu-host-1', 1, undefined],
      ['gpu-host-2', 2, undefined],
      ['gpu-host-3', 3, undefined],
    ],
  );
  assert.equal(new Set(gpuHosts.flatMap(({ address, kvDirectory }) => [address, kvDirectory])).size, 6);
  assert.throws(() => withToml('[gpu_host]\ncount = 2\naddress = "127.0.0.1:9"'), /count.*must be 1/s);
});

test('the defaults are a private Redis and one GPU host with stories15m and minimind2-small', () => {
  const config = withToml('');
  assert.equal(config.port, 8787);
  assert.equal(config.redis.kind, 'private');
  assert.deepEqual(
    config.gpuHosts[0]?.models.map((model) => [model.name, model.backend, model.bits]),
    [
      ['stories15m', 'onnx', 32],
      ['minimind2-small', 'onnx', 32],
    ],
  );
  const [one] = withToml('', { PIE_MODEL: 'minimind2-small' }).gpuHosts;
  assert.deepEqual(
    one?.models.map(({ name }) => name),
    ['minimind2-small'],
  );
});

test('a private Redis gets a share of the memory unless the file sets it', () => {
  const { redis } = withToml('');
  assert.ok(redis.kind === 'private' && redis.maxMemoryMb >= 256 && redis.maxMemoryMb < os.totalmem() / 2 ** 20);
  assert.deepEqual([redisShareMb(100), redisShareMb(64 * 1024)], [256, 16 * 1024]);
  assert.deepEqual([1, 2, 8, 96].map(buildsAtOnce), [1, 1, 4, 8]);
  assert.equal(withToml('[runtime]\nbuilds = 3\n').runtime.builds, 3);
  const set = withToml('[redis]\nmax_memory_mb = 300\n');
  assert.ok(set.redis.kind === 'private' && set.redis.maxMemoryMb === 300);
  const spec = privateRedis(set, set.redis);
  assert.equal(spec.args[spec.args.indexOf('--maxmemory') + 1], '300mb');
  assert.equal(spec.args[spec.args.indexOf('--maxmemory-policy') + 1], 'noeviction');
  assert.throws(() => withToml('[redis]\nmax_memory_mb = 1\n'), ConfigError);
});

test('running inferlets get half of the memory unless the file sets it', () => {
  const { runtime } = withToml('');
  assert.ok(runtime.memoryMb >= 256 && runtime.memoryMb < os.totalmem() / 2 ** 20);
  assert.deepEqual([runtimeShareMb(100), runtimeShareMb(64 * 1024)], [256, 32 * 1024]);
  assert.equal(withToml('[runtime]\ntotal_memory_mb = 300\n').runtime.memoryMb, 300);
  assert.throws(() => withToml('[runtime]\ntotal_memory_mb = 1\n'), ConfigError);
});

test('the supervisor watches runtimes, gateway and GPU hosts, and not Redis', () => {
  const children = machineProcesses(withToml(''));
  const watched = children.filter(({ watch }) => watch !== undefined).map(({ name }) => name);
  assert.deepEqual(watched.toSorted(), ['gateway', 'gpu-host-1', 'runtime-1']);
});

test('a machine has a name and roles; with a shared Redis its processes carry the name', () => {
  const shared = '[redis]\nurl = "redis://10.0.0.1:6379"\n';
  const config = withToml(`${shared}[machine]\nname = "east-1"\nroles = ["gpu-host", "gateway"]\n`);
  assert.deepEqual(config.machine, { name: 'east-1', roles: ['gateway', 'gpu-host'] });
  assert.deepEqual(
    machineProcesses(config).map(({ name, env }) => [name, env?.PIE_GPU_HOST_NAME ?? env?.PIE_GATEWAY_ID]),
    [
      ['gpu-host-1', 'gpu-host-1@east-1'],
      ['gateway', 'gateway@east-1'],
    ],
  );
  const runtime = withToml(shared, { PIE_MACHINE: 'west', PIE_ROLES: ' runtime' });
  assert.deepEqual([runtime.machine, runtime.gpuHosts], [{ name: 'west', roles: ['runtime'] }, []]);
  assert.equal(runtime.models.length, 2, 'the aliases and tokenizers of models are needed everywhere');
  assert.deepEqual(
    machineProcesses(runtime).map(({ name, env }) => [name, env?.PIE_RUNTIME_ID]),
    [['runtime-1', 'runtime-1@west']],
  );
  const alone = withToml('');
  assert.match(alone.machine.name, /^[a-z0-9][a-z0-9.-]*$/);
  assert.equal(alone.gpuHosts[0]?.name, 'gpu-host-1');
  assert.throws(() => withToml('', { PIE_ROLES: 'runtime' }), /The roles runtime need a Redis.*Set REDIS_URL/);
  assert.throws(() => withToml(shared, { PIE_ROLES: 'runtimes' }), /PIE_ROLES/);
  for (const everywhere of ['0.0.0.0:7400', '[::]:7400', ':7400'])
    assert.throws(() => withToml(shared, { PIE_GPU_HOST: everywhere }), /PIE_GPU_HOST: must name the address at which/);
  assert.throws(
    () => withToml(shared, { PIE_GPU_HOST: '10.0.0.5:70000' }),
    /PIE_GPU_HOST: must have a port below 65536/,
  );
  assert.equal(withToml(shared, { PIE_GPU_HOST: '[fe80::1]:7400' }).gpuHosts[0]?.address, '[fe80::1]:7400');
  assert.throws(() => withToml(shared, { PIE_MACHINE: 'East 1' }), /PIE_MACHINE: must consist of/);
});

test('a shared Redis is given by URL, with TLS, user and password; errors and messages hold no password', () => {
  const url = 'rediss://pie:p%40ss@redis.example:6380/2';
  writeFileSync(path.join(home, 'ca.pem'), 'certificates');
  const { redis } = withToml(`[redis]\nurl = "${url}"\nca = "ca.pem"\n`);
  assert.deepEqual(redis, { kind: 'external', url, ca: path.join(home, 'ca.pem') });
  const { host, port, username, password, db, tls } = redisOptions({ redis });
  assert.deepEqual([host, port, username, password, db], ['redis.example', 6380, 'pie', 'p@ss', 2]);
  assert.equal(String(tls?.ca), 'certificates');
  assert.equal(shownRedis(redis), 'rediss://pie:***@redis.example:6380/2');
  assert.deepEqual(withToml('', { REDIS_URL: url }).redis, { kind: 'external', url });
  assert.throws(() => withToml('[redis]\nurl = "redis://h"\nca = "ca.pem"\n'), /redis\.ca: goes with a url/);
  assert.throws(
    () => withToml('', { REDIS_URL: 'http://user:secret@h' }),
    (error) =>
      error instanceof ConfigError && /REDIS_URL: must be redis:/.test(error.message) && !/secret/.test(error.message),
  );
});

test('the environment wins over the file', () => {
  const config = withToml('[gateway]\nport = 9000\n[[model]]\nname = "m"\nsource = "file:/m"\n', {
    PIE_PORT: '9001',
    PIE_BITS: '8',
  });
  assert.equal(config.port, 9001);
  assert.deepEqual(
    config.gpuHosts[0]?.models.map((model) => [model.source, model.bits, model.headBits]),
    [['file:/m', 8, 8]],
  );
});

test('a model has aliases, and admission has max_waiting', () => {
  const { gpuHosts, admission } = withToml(
    '[admission]\nmax_waiting = 7\n[[model]]\nname = "m"\naliases = ["gpt-4o"]\n',
  );
  assert.deepEqual(
    [gpuHosts[0]?.models[0]?.aliases, admission],
    [['gpt-4o'], { overcommit: 1, reserve: 0.0625, maxWaiting: 7 }],
  );
});

test('a model has memory and batching settings with defaults', () => {
  const text = `
    [[model]]
    name = "plain"
    [[model]]
    name = "set"
    prefix_cache = false
    swap_memory_mb = 0
    swap_disk_mb = 7
    batch_policy = "k-only"
    batch_policy_calls = 32
    batch_policy_ms = 2.5
  `;
  const [host] = withToml(text).gpuHosts;
  assert.deepEqual(
    host?.models.map((model) => [model.prefixCache, model.swapMemoryMb, model.swapDiskMb, model.batchPolicy]),
    [
      [true, 256, 1024, { kind: 'adaptive' }],
      [false, 0, 7, { kind: 'k-only', calls: 32, maxWaitMs: 2.5 }],
    ],
  );
  assert.equal(host?.kvDirectory, path.join(home, 'kv', 'gpu-host-1'));
  const policyOf = (lines: string) => withToml(`[[model]]\nname = "m"\n${lines}`).gpuHosts[0]?.models[0]?.batchPolicy;
  assert.deepEqual(policyOf('batch_policy = "t-only"\nbatch_policy_ms = 5'), { kind: 't-only', intervalMs: 5 });
  assert.deepEqual(policyOf('batch_policy = "rate"\nbatch_policy_ms = 5'), { kind: 'rate', maxWaitMs: 5 });
  assert.deepEqual(policyOf('batch_policy = "eager"'), { kind: 'eager' });
});

test('a CUDA model has a device, memory, precision, pages and a step deadline', () => {
  const text = '[[model]]\nname = "m"\nbackend = "cuda"\n';
  const modelOf = (lines: string, environment?: NodeJS.ProcessEnv) =>
    withToml(`${text}${lines}`, environment).gpuHosts[0]?.models[0];
  const { backend, precision, device, memoryMb, pages } = modelOf('')!;
  assert.deepEqual([backend, precision, device, memoryMb, pages], ['cuda', undefined, undefined, undefined, 0]);
  assert.equal(modelOf('pages = 77')?.pages, 77);
  assert.equal(modelOf('', { PIE_BACKEND: 'onnx' })?.pages, 1024);
  const set = modelOf('device = 1\nmemory_mb = 40000\nprecision = "float32"\npages = 0\nstep_deadline_s = 5')!;
  const { stepDeadlineS } = set;
  assert.deepEqual([set.precision, set.device, set.memoryMb, set.pages, stepDeadlineS], ['float32', 1, 40_000, 0, 5]);
  for (const narrow of ['int8', 'fp8', 'int4']) assert.equal(modelOf(`precision = "${narrow}"`)?.precision, narrow);
  assert.equal(set.kv, undefined);
  assert.equal(modelOf('kv = "fp8"')?.kv, 'fp8');
  assert.deepEqual([set.dependentLaunch, set.fuseNorm], [undefined, undefined]);
  const { dependentLaunch, fuseNorm } = modelOf('dependent_launch = false\nfuse_norm = false')!;
  assert.deepEqual([dependentLaunch, fuseNorm], [false, false]);
  const elsewhere = modelOf('pages = 0', { PIE_BACKEND: 'onnx' })!;
  assert.deepEqual([elsewhere.backend, elsewhere.bits, elsewhere.pages], ['onnx', 32, 1024]);
  assert.equal(withToml('', { PIE_BACKEND: 'cuda' }).gpuHosts[0]?.models[0]?.backend, 'cuda');
});

test('of models that share a card, one that would take all free memory is refused', () => {
  const models = (first: string, second: string, environment?: NodeJS.ProcessEnv) =>
    withToml(
      `[[model]]\nname = "m"\nbackend = "cuda"\n${first}\n[[model]]\nname = "n"\nbackend = "cuda"\n${second}`,
      environment,
    ).gpuHosts[0]?.models.map(({ pages }) => pages);
  const refused = (name: string) => (error: unknown) =>
    error instanceof ConfigError &&
    error.message.includes('share CUDA device 0') &&
    error.message.includes(`Set memory_mb or pages of "${name}"`);
  assert.throws(() => models('', 'pages = 5'), refused('m'));
  assert.throws(() => models('pages = 5', 'device = 0'), refused('n'));
  assert.throws(() => models('memory_mb = 0', 'memory_mb = 9000'), refused('m'));
  assert.deepEqual(models('pages = 5', 'memory_mb = 9000'), [5, 0]);
  assert.deepEqual(models('memory_mb = 9000', 'memory_mb = 9000'), [0, 0]);
  assert.deepEqual(models('', 'device = 1'), [0, 0]);
  assert.deepEqual(models('', '', { PIE_BACKEND: 'reference' }), [1024, 1024]);
  const two = '[[model]]\nname = "m"\n[[model]]\nname = "n"';
  assert.throws(() => withToml(two, { PIE_BACKEND: 'cuda' }), refused('m'));
});

test('several GPU hosts with models on several cards share no card', () => {
  const { gpuHosts } = withToml(
    '[gpu_host]\ncount = 3\n[[model]]\nname = "a"\nbackend = "cuda"\ndevice = 1\n[[model]]\nname = "b"\n' +
      '[[model]]\nname = "c"\nbackend = "cuda"\ndevice = 3',
  );
  assert.deepEqual(
    gpuHosts.map(({ models }) => models.map(({ device }) => device)),
    [
      [1, undefined, 3],
      [4, undefined, 6],
      [7, undefined, 9],
    ],
  );
});

test('a model has adapters and a bound for their memory', () => {
  const adapters = [{ name: 'pirate', source: 'file:/adapters/pirate' }];
  const text = '[[model]]\nname = "m"\nadapters = [{ name = "pirate", source = "file:/adapters/pirate" }]\n';
  const [set, more] = withToml(`${text}[[model]]\nname = "n"\nadapter_memory_mb = 64`).gpuHosts[0]?.models ?? [];
  assert.deepEqual([set?.adapters, set?.adapterMemoryMb], [adapters, 1024]);
  assert.deepEqual([more?.adapters, more?.adapterMemoryMb], [[], 64]);
});

test('http and webhooks have separate lists of private hosts', () => {
  assert.deepEqual(withToml('').http.privateHosts, []);
  const hosts = ['127.0.0.1', 'tools.internal', '*.lan', '[::1]:8080', 'localhost:*'];
  const named = hosts.map((host) => ({ host }));
  assert.deepEqual(withToml(`[http]\nprivate_hosts = ${JSON.stringify(hosts)}`).http.privateHosts, named);
  const text = 'private_hosts = ["10.0.0.1", { host = "tools.internal:8080", tenant = "acme" }, { host = "db.lan" }]';
  const { http, webhooks } = withToml(`[webhooks]\n${text}`);
  assert.deepEqual(http.privateHosts, [], 'private hosts of webhooks do not apply to inferlets');
  assert.deepEqual(webhooks.privateHosts, [
    { host: '10.0.0.1' },
    { host: 'tools.internal:8080', tenant: 'acme' },
    { host: 'db.lan' },
  ]);
});

test('the gateway bounds body memory, body time and streams', () => {
  assert.deepEqual(withToml('').gateway, {
    heldBodyBytes: 256 * 2 ** 20,
    bodyGraceMs: 20_000,
    bodyBytesPerSecond: 8 * 2 ** 20,
    streams: 16_384,
    streamsPerKey: 4096,
  });
  const text =
    '[gateway]\nbody_memory_mb = 512\nbody_grace_ms = 5000\nbody_mb_per_second = 0.5\nstreams = 100\nstreams_per_key = 10\n';
  const set = {
    heldBodyBytes: 512 * 2 ** 20,
    bodyGraceMs: 5000,
    bodyBytesPerSecond: 2 ** 19,
    streams: 100,
    streamsPerKey: 10,
  };
  assert.deepEqual(withToml(text).gateway, set);
  assert.throws(() => withToml('[gateway]\nbody_memory_mb = 64'), /gateway\.body_memory_mb/);
});

test('telemetry is off without an endpoint, and the OpenTelemetry variables win over the file', () => {
  const off = { sampleRatio: 1, serviceNamespace: 'pie', metricsPublic: false };
  assert.deepEqual(withToml('').telemetry, off);
  const text = '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318/"\nsample_ratio = 0.5\nmetrics_public = true\n';
  const set = { ...off, otlpEndpoint: 'http://127.0.0.1:4318', sampleRatio: 0.5, metricsPublic: true };
  assert.deepEqual(withToml(text).telemetry, set);
  const variables = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector:4318',
    OTEL_TRACES_SAMPLER_ARG: '0.1',
    OTEL_SERVICE_NAME: 'inference',
  };
  assert.deepEqual(withToml(text, variables).telemetry, {
    ...set,
    otlpEndpoint: 'https://collector:4318',
    sampleRatio: 0.1,
    serviceName: 'inference',
  });
  assert.equal(withToml(text, { OTEL_SDK_DISABLED: 'true' }).telemetry.otlpEndpoint, undefined);
  assert.throws(() => withToml('[telemetry]\notlp_endpoint = "collector:4318"'), /telemetry\.otlp_endpoint/);
  assert.throws(() => withToml('', { OTEL_TRACES_SAMPLER_ARG: '2' }), /OTEL_TRACES_SAMPLER_ARG/);
});

test('an empty variable counts as unset', () => {
  assert.equal(withToml('', { PIE_PORT: '', REDIS_URL: '' }).port, 8787);
});

for (const [what, text, says] of [
  ['an unknown key', 'colour = "red"', /colour/],
  ['a value out of range', '[[model]]\nname = "m"\npage_size = 64', /model\.0\.page_size/],
  ['tensor parallelism', '[[model]]\nname = "m"\ntensor_parallel_size = 2', /tensor_parallel_size/],
  [
    'a host that is a URL',
    '[http]\nprivate_hosts = ["http://localhost"]',
    /http\.private_hosts\.0\.host: must be a host/,
  ],
  [
    'a port out of range',
    '[webhooks]\nprivate_hosts = ["a.lan:65536"]',
    /webhooks\.private_hosts\.0\.host: .*1 to 65535/,
  ],
  [
    'a malformed tenant name',
    '[http]\nprivate_hosts = [{ host = "a.lan", tenant = "A" }]',
    /0\.tenant: must be the name/,
  ],
  [
    'a table without a host',
    '[http]\nprivate_hosts = [{ tenant = "a" }]',
    /http\.private_hosts\.0\.host: must be a host/,
  ],
  ['hosts that are not a list', '[http]\nprivate_hosts = "a.lan"', /http\.private_hosts: must be a list of hosts/],
  [
    'an alias equal to a model name',
    '[[model]]\nname = "m"\n[[model]]\nname = "n"\naliases = ["m"]',
    /same name or alias/,
  ],
  ['two models with one name', '[[model]]\nname = "m"\n[[model]]\nname = "m"', /same name/],
  [
    'a policy without its setting',
    '[[model]]\nname = "m"\nbatch_policy = "k-only"\nbatch_policy_ms = 5',
    /batch_policy_calls: k-only needs it/,
  ],
  [
    'a setting without its policy',
    '[[model]]\nname = "m"\nbatch_policy_ms = 5',
    /batch_policy_ms: means nothing to adaptive/,
  ],
  [
    'bits for a CUDA model',
    '[[model]]\nname = "m"\nbackend = "cuda"\nbits = 8',
    /model\.0\.bits: means nothing to cuda; it has precision/,
  ],
  ['an fp8 cache on the CPU', '[[model]]\nname = "m"\nkv = "fp8"', /model\.0\.kv: means nothing to onnx/],
  [
    'an fp8 cache beside float32',
    '[[model]]\nname = "m"\nbackend = "cuda"\nprecision = "float32"\nkv = "fp8"',
    /model\.0\.kv: does not go with precision = "float32"/,
  ],
  [
    'a cache of another width',
    '[[model]]\nname = "m"\nbackend = "cuda"\nkv = "int4"',
    /model\.0\.kv: must be "fp8", or left out/,
  ],
  ['a device for a CPU model', '[[model]]\nname = "m"\ndevice = 0', /model\.0\.device: means nothing to onnx/],
  ['a pool without pages', '[[model]]\nname = "m"\npages = 0', /model\.0\.pages: must be at least 1/],
  ['an unknown policy', '[[model]]\nname = "m"\nbatch_policy = "psychic"', /batch_policy/],
  [
    'an adapter source that is no directory',
    '[[model]]\nname = "m"\nadapters = [{ name = "a", source = "hf:me/a" }]',
    /model\.0\.adapters\.0\.source: must be file:/,
  ],
  [
    'two adapters with one name',
    '[[model]]\nname = "m"\nadapters = [{ name = "a", source = "file:a" }, { name = "a", source = "file:b" }]',
    /model\.0\.adapters: two of them are named "a"/,
  ],
  ['broken TOML', '[[model', /pie\.toml/],
] as const) {
  test(`${what} is refused with its place`, () => {
    assert.throws(
      () => withToml(text),
      (error) => error instanceof ConfigError && says.test(error.message),
    );
  });
}

test('a wrong environment variable is refused', () => {
  assert.throws(() => withToml('', { PIE_PORT: '99999' }), /PIE_PORT/);
});

test('a home with a long path gets a run directory with a short path for its sockets', () => {
  const config = loadConfig({ PIE_HOME: path.join(home, 'x'.repeat(120)) });
  assert.ok(Buffer.byteLength(config.runDirectory) <= 80);
});

test('retention has defaults and units, and refuses wrong units, order or bounds', () => {
  const DAY_MS = 86_400_000;
  assert.deepEqual(withToml('').retention, {
    recordMs: 7 * DAY_MS,
    eventsMs: DAY_MS,
    resultsMs: DAY_MS,
    filesMs: DAY_MS,
    logMs: 7 * DAY_MS,
    logLines: 2000,
    idempotencyMs: DAY_MS,
  });
  const set = withToml(
    '[retention]\nrecords = "30d"\nevents = "90m"\nresults = "2h"\nidempotency = "30s"\nlog_lines = 50\n',
  );
  const { recordMs, eventsMs, resultsMs, idempotencyMs, logLines } = set.retention;
  assert.deepEqual(
    [recordMs, eventsMs, resultsMs, idempotencyMs, logLines],
    [30 * DAY_MS, 5_400_000, 7_200_000, 30_000, 50],
  );
  for (const wrong of [
    'records = 7',
    'records = "7"',
    'records = "0d"',
    'records = "367d"',
    'records = "1h"',
    'events = "8d"',
    'files = "8d"',
    'results = "1h"',
    'results = "8d"',
    'idempotency = "2d"',
    'log_lines = 5',
    'evnets = "1d"',
  ])
    assert.throws(() => withToml(`[retention]\n${wrong}\n`), ConfigError, wrong);
});

test('isolation is auto unless the file names namespaces or process, and other values are refused', () => {
  assert.equal(withToml('').runtime.isolation, 'auto');
  assert.equal(withToml('[runtime]\nisolation = "namespaces"').runtime.isolation, 'namespaces');
  assert.equal(withToml('[runtime]\nisolation = "process"').runtime.isolation, 'process');
  assert.throws(() => withToml('[runtime]\nisolation = "none"'), /runtime\.isolation/);
});

test('an encoder has a kind, a source and threads, and stands beside models that generate', () => {
  const encoder = '[[model]]\nname = "minilm"\nkind = "embedding"\nsource = "hf:a/minilm"\n';
  const config = withToml(`[[model]]\nname = "m"\n${encoder}threads = 2\n`);
  const entry = { name: 'minilm', kind: 'embedding', source: 'hf:a/minilm', threads: 2 };
  assert.deepEqual(config.encoders, [entry]);
  assert.deepEqual(config.gpuHosts[0]?.encoders, [entry]);
  assert.deepEqual(
    config.models.map(({ name }) => name),
    ['m'],
  );
  assert.deepEqual(withToml('').encoders, []);
  const refused = (text: string, pattern: RegExp) => assert.throws(() => withToml(text), pattern);
  refused(encoder, /generates text/);
  refused(`[[model]]\nname = "minilm"\n${encoder}`, /same name/);
  refused(`[[model]]\nname = "m"\naliases = ["minilm"]\n${encoder}`, /same name/);
  refused(`[[model]]\nname = "m"\n${encoder}pages = 5\n`, /pages/);
  refused(`[[model]]\nname = "m"\n${encoder.replace('embedding', 'vectors')}`, /kind/);
  refused(`[[model]]\nname = "m"\n${encoder.replace('hf:a/', '')}`, /source/);
});
