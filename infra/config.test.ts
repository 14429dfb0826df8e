import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { gatewayUrl, loadConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { buildsAtOnce, redisShareMb, runtimeShareMb } from './machine-settings.ts';
import { machineProcesses, privateRedis } from './processes.ts';
import { redisOptions } from './redis.ts';
import { shownRedis } from './redis-settings.ts';
import { gpuHostWaitMs } from './runtimes.ts';

const home = mkdtempSync(path.join(os.tmpdir(), 'pie-config-'));
after(() => rmSync(home, { recursive: true, force: true }));

function withToml(text: string, environment: NodeJS.ProcessEnv = {}) {
  writeFileSync(path.join(home, 'pie.toml'), text);
  return loadConfig({ PIE_HOME: home, ...environment });
}

test('the defaults are a private Redis and one GPU host with stories15m and minimind2-small', () => {
  const config = withToml('');
  assert.equal(config.port, 8787);
  assert.equal(config.redis.kind, 'private');
  assert.deepEqual(
    config.gpuHosts[0]?.models.map((model) => [model.name, model.backend, model.bits]),
    [
      ['stories15m', 'auto', 32],
      ['minimind2-small', 'auto', 32],
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

test('a private Redis has time to load all that it may hold', () => {
  const secondsFor = (gigabytes: number) => {
    const config = withToml(`[redis]\nmax_memory_mb = ${gigabytes * 1024}\n`);
    assert.ok(config.redis.kind === 'private');
    return privateRedis(config, config.redis).readyTimeoutMs / 1000;
  };
  // A snapshot takes about ten seconds per gigabyte to load; the append-only log after it may be as long and takes more.
  for (const gigabytes of [1, 4, 64]) assert.ok(secondsFor(gigabytes) >= 40 * gigabytes, `${gigabytes} GB`);
});

test('a GPU host has time to write a block-quantized model as floats, and the runtime of its machine waits for it', () => {
  const config = withToml('');
  const children = machineProcesses(config);
  const readyMs = (child: string) => children.find(({ name }) => name === child)?.readyTimeoutMs ?? 0;
  // 4 bytes for each of 32 billion weights, at 100 MB a second.
  for (const ms of [readyMs('gpu-host-1'), readyMs('runtime-1'), gpuHostWaitMs(config)]) assert.ok(ms >= 1_280_000);
  const runtime = withToml('', { PIE_ROLES: 'runtime', REDIS_URL: 'redis://10.0.0.1:6379' });
  assert.equal(gpuHostWaitMs(runtime), 300_000, 'a runtime on a machine without a GPU host waits less');
});

test('running inferlets get half of the memory unless the file sets it', () => {
  const { runtime } = withToml('');
  assert.ok(runtime.memoryMb >= 256 && runtime.memoryMb < os.totalmem() / 2 ** 20);
  assert.deepEqual([runtimeShareMb(100), runtimeShareMb(64 * 1024)], [256, 32 * 1024]);
  assert.equal(withToml('[runtime]\ntotal_memory_mb = 300\n').runtime.memoryMb, 300);
  assert.throws(() => withToml('[runtime]\ntotal_memory_mb = 1\n'), ConfigError);
});

test('the supervisor watches runtimes, gateway, GPU hosts and the index host, and not Redis', () => {
  const children = machineProcesses(withToml(''));
  const watched = children.filter(({ watch }) => watch !== undefined).map(({ name }) => name);
  assert.deepEqual(watched.toSorted(), ['gateway', 'gpu-host-1', 'index-host', 'runtime-1']);
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
    [
      ['index-host', undefined],
      ['runtime-1', 'runtime-1@west'],
    ],
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
  for (const table of ['gpu_host', 'runtime'])
    assert.throws(
      () => withToml(`${shared}[${table}]\naddress = "10.0.0.5"\n`),
      new RegExp(`${table}\\.address: must have a port`),
    );
  assert.equal(withToml(shared, { PIE_GPU_HOST: '[fe80::1]:7400' }).gpuHosts[0]?.address, '[fe80::1]:7400');
  const derived = withToml(shared, { PIE_ADDRESS: 'fd00::5' });
  assert.deepEqual([derived.gpuHosts[0]?.address, derived.runtime.address], ['[fd00::5]:7400', '[fd00::5]:7500']);
  const explicit = withToml(`${shared}\n[gpu_host]\ncount = 2\n[runtime]\naddress = "b:2"\n[machine]\naddress = "a"`);
  assert.deepEqual(
    [...explicit.gpuHosts.map(({ address }) => address), explicit.runtime.address],
    ['a:7400', 'a:7401', 'b:2'],
  );
  assert.equal(withToml(shared).runtime.address, undefined);
  for (const wrong of ['0.0.0.0', '::', 'a:7400', 'http://a'])
    assert.throws(() => withToml(shared, { PIE_ADDRESS: wrong }), /PIE_ADDRESS: must be/);
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
  assert.equal(redisOptions({ redis: { kind: 'external', url: 'redis://[fd00::1]:6379' } }).host, 'fd00::1');
  assert.equal(shownRedis(redis), 'rediss://pie:***@redis.example:6380/2');
  assert.deepEqual(withToml('', { REDIS_URL: url }).redis, { kind: 'external', url });
  for (const overruled of ['', 'url = "redis://h"\n'])
    assert.deepEqual(withToml(`[redis]\n${overruled}ca = "ca.pem"\n`, { REDIS_URL: url }).redis, redis);
  for (const plain of ['url = "redis://h"\nca = "ca.pem"', 'ca = "ca.pem"'])
    assert.throws(() => withToml(`[redis]\n${plain}\n`), /redis\.ca: needs a url/);
  assert.throws(() => withToml('[redis]\nca = "ca.pem"\n', { REDIS_URL: 'redis://h' }), /redis\.ca: needs a url/);
  for (const wrong of ['http://user:secret@h', 'redis://user:secret@h/cache', 'redis://user:secret@h/0/1'])
    assert.throws(
      () => withToml('', { REDIS_URL: wrong }),
      (error) =>
        error instanceof ConfigError &&
        /REDIS_URL: must be redis:/.test(error.message) &&
        !/secret/.test(error.message),
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

test('images come from no host by default', () => {
  assert.deepEqual(withToml('').http.imageHosts, []);
  const hosts = ['images.example.com', '*.cdn.example.com', 'localhost:*', '[::1]:8443'];
  assert.deepEqual(withToml(`[http]\nimage_hosts = ${JSON.stringify(hosts)}`).http.imageHosts, hosts);
  for (const wrong of ['*', 'https://a.lan', 'A.lan', 'a.lan/b', 'a.lan:0', ''])
    assert.throws(() => withToml(`[http]\nimage_hosts = ["${wrong}"]`), /http\.image_hosts\.0: must be a host/, wrong);
});

test('pages of no other origin may call the API by default', () => {
  assert.deepEqual(withToml('').http.corsOrigins, []);
  const origins = [
    '*',
    'https://app.example.com',
    'http://localhost:5173',
    'http://[::1]:81',
    'chrome-extension://abcd',
  ];
  assert.deepEqual(withToml(`[http]\ncors_origins = ${JSON.stringify(origins)}`).http.corsOrigins, origins);
  for (const wrong of [
    'http://a.lan/',
    'https://a.lan:443',
    'http://A.lan',
    'a.lan',
    'https://*.a.lan',
    'null',
    '',
    'http://[::1]:80',
  ])
    assert.throws(
      () => withToml(`[http]\ncors_origins = ["${wrong}"]`),
      /http\.cors_origins\.0: must be "\*" or an origin/,
      wrong,
    );
});

test('the gateway bounds body memory, body time, streams and connections', () => {
  assert.deepEqual(withToml('').gateway, {
    heldBodyBytes: 256 * 2 ** 20,
    bodyGraceMs: 20_000,
    bodyBytesPerSecond: 8 * 2 ** 20,
    streams: 16_384,
    streamsPerKey: 4096,
    connections: 32_768,
  });
  const text =
    '[gateway]\nbody_memory_mb = 512\nbody_grace_ms = 5000\nbody_mb_per_second = 0.5\nstreams = 100\nstreams_per_key = 10\nconnections = 200\n';
  const set = {
    heldBodyBytes: 512 * 2 ** 20,
    bodyGraceMs: 5000,
    bodyBytesPerSecond: 2 ** 19,
    streams: 100,
    streamsPerKey: 10,
    connections: 200,
  };
  assert.deepEqual(withToml(text).gateway, set);
  assert.throws(() => withToml('[gateway]\nbody_memory_mb = 64'), /gateway\.body_memory_mb/);
});

test('the shared directory is an absolute path outside of the home', () => {
  assert.deepEqual(withToml('').storage, { tenantNames: 256, tenantMb: 4096 });
  const text = '[storage]\nshared_directory = "/mnt/pie/"\ntenant_names = 8\ntenant_mb = 64\n';
  assert.deepEqual(withToml(text).storage, { sharedDirectory: '/mnt/pie', tenantNames: 8, tenantMb: 64 });
  assert.throws(
    () => withToml('[storage]\nshared_directory = "pie"'),
    /storage\.shared_directory: must be an absolute path/,
  );
  for (const inside of [home, path.join(home, 'kv', 'shared')])
    assert.throws(() => withToml(`[storage]\nshared_directory = "${inside}"`), /belongs to one machine/);
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

test('the time of a drain fits into the timers that bound it', () => {
  const config = withToml('drain_ms = 86400000');
  const gateway = machineProcesses(config).find(({ name }) => name === 'gateway');
  assert.ok(gateway && gateway.stopTimeoutMs > 86_400_000 && gateway.stopTimeoutMs < 2 ** 31);
  // With the margin that a stop adds, this drain exceeds the longest timer of Node, 2 ** 31 - 1 ms.
  assert.throws(() => withToml('drain_ms = 2147480648'), /drain_ms/);
});

test('the URL of the gateway has brackets around an IPv6 address', () => {
  assert.equal(gatewayUrl(withToml('', { PIE_HOST: '::1' })), 'http://[::1]:8787');
  assert.equal(gatewayUrl(withToml('', { PIE_HOST: 'localhost', PIE_PORT: '80' })), 'http://localhost:80');
});

test('an empty variable counts as unset', () => {
  assert.equal(withToml('', { PIE_PORT: '', REDIS_URL: '' }).port, 8787);
});

for (const [what, text, message] of [
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
    'bits for a CUDA model',
    '[[model]]\nname = "m"\nbackend = "cuda"\nbits = 8',
    /model\.0\.bits: has no effect with cuda; use precision/,
  ],
  ['an fp8 cache on the CPU', '[[model]]\nname = "m"\nkv = "fp8"', /model\.0\.kv: needs backend = "cuda"/],
  [
    'an fp8 cache beside float32',
    '[[model]]\nname = "m"\nbackend = "cuda"\nprecision = "float32"\nkv = "fp8"',
    /model\.0\.kv: cannot be combined with precision = "float32"/,
  ],
  [
    'a cache of another width',
    '[[model]]\nname = "m"\nbackend = "cuda"\nkv = "int4"',
    /model\.0\.kv: must be "fp8", or left out/,
  ],
  [
    'memory of a step on a card',
    '[[model]]\nname = "m"\nbackend = "cuda"\nstep_memory_mb = 512',
    /model\.0\.step_memory_mb: has no effect with cuda/,
  ],
  ['a device for a CPU model', '[[model]]\nname = "m"\ndevice = 0', /model\.0\.device: needs backend = "cuda"/],
  ['a pool without pages', '[[model]]\nname = "m"\npages = 0', /model\.0\.pages: must be at least 1/],
  [
    'an adapter source that is not a directory',
    '[[model]]\nname = "m"\nadapters = [{ name = "a", source = "hf:me/a" }]',
    /model\.0\.adapters\.0\.source: must be file:/,
  ],
  [
    'two adapters with one name',
    '[[model]]\nname = "m"\nadapters = [{ name = "a", source = "file:a" }, { name = "a", source = "file:b" }]',
    /model\.0\.adapters: two of them are named "a"/,
  ],
  ['marks of thoughts without an end', '[[model]]\nname = "m"\nthoughts = { open = "<t>" }', /model\.0\.thoughts/],
  [
    'a blank mark of thoughts',
    '[[model]]\nname = "m"\nthoughts = { open = "<t>", close = "\\n" }',
    /model\.0\.thoughts/,
  ],
  ['thoughts that are true', '[[model]]\nname = "m"\nthoughts = true', /model\.0\.thoughts: must be false, or/],
  ['broken TOML', '[[model', /pie\.toml/],
] as const) {
  test(`${what} is refused with an error that names the place`, () => {
    assert.throws(
      () => withToml(text),
      (error) => error instanceof ConfigError && message.test(error.message),
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

test('the log has a level and a format, which the environment may set for one start', () => {
  assert.deepEqual(withToml('').log, { level: 'info', format: 'text' });
  const file = '[log]\nlevel = "warn"\nformat = "json"\n';
  assert.deepEqual(withToml(file).log, { level: 'warn', format: 'json' });
  const environment = { PIE_LOG_LEVEL: 'error', PIE_LOG_FORMAT: 'text' };
  assert.deepEqual(withToml(file, environment).log, { level: 'error', format: 'text' });
  for (const [wrong, why] of [
    ['[log]\nlevel = "loud"\n', /pie\.toml:\n {2}log\.level: .*"error"\|"warn"\|"info"/],
    ['[log]\nformat = "xml"\n', /log\.format: .*"text"\|"json"/],
    ['[log]\nfile = "x"\n', /log: Unrecognized key: "file"/],
  ] as const)
    assert.throws(() => withToml(wrong), why);
  assert.throws(() => withToml('', { PIE_LOG_LEVEL: 'loud' }), /the environment:\n {2}PIE_LOG_LEVEL: /);
});
