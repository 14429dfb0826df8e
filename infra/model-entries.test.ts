import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { loadConfig } from './config.ts';
import { ConfigError } from './config-error.ts';

const home = mkdtempSync(path.join(os.tmpdir(), 'pie-models-'));
after(() => rmSync(home, { recursive: true, force: true }));

function withToml(text: string, environment: NodeJS.ProcessEnv = {}) {
  writeFileSync(path.join(home, 'pie.toml'), text);
  return loadConfig({ PIE_HOME: home, ...environment });
}

test('several GPU hosts each have all models, and each host puts a CUDA model on another card', () => {
  const { gpuHosts, placement } = withToml(
    `[gpu_host]\ncount = 3\nplacement = "invocation"\n[[model]]\nname = "a"\nbackend = "cuda"\ndevice = 1\n[[model]]\nname = "b"`,
  );
  assert.equal(placement, 'invocation');
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

test('placement is by invocation unless set', () => {
  const placementOf = (lines: string) => withToml(`[gpu_host]\n${lines}`).placement;
  assert.equal(placementOf(''), 'invocation');
  for (const placement of ['tenant', 'invocation']) assert.equal(placementOf(`placement = "${placement}"`), placement);
  assert.throws(() => placementOf('placement = "host"'), /gpu_host\.placement: .*"invocation"\|"tenant"/);
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

test('a model may have marks of thoughts, or none', () => {
  const { gpuHosts } = withToml(
    '[[model]]\nname = "m"\nthoughts = { open = "<t>\\n", close = "</t>" }\n[[model]]\nname = "n"\nthoughts = false\n[[model]]\nname = "o"',
  );
  assert.deepEqual(
    gpuHosts[0]?.models.map(({ thoughts }) => thoughts),
    [{ open: '<t>\n', close: '</t>' }, false, undefined],
  );
});

test('a CPU model may have a bound on the memory of a step', () => {
  const { gpuHosts } = withToml('[[model]]\nname = "m"\nstep_memory_mb = 512\n[[model]]\nname = "n"');
  assert.deepEqual(
    gpuHosts[0]?.models.map(({ stepMemoryMb }) => stepMemoryMb),
    [512, undefined],
  );
});

test('a model and an encoder may have the pace of another device, for benchmarks', () => {
  const pace = 'pace = { step_ms = 20, token_ms = 0.5 }';
  const { models, encoders } = withToml(
    `[[model]]\nname = "m"\n${pace}\n[[model]]\nname = "plain"\n[[model]]\nname = "e"\nkind = "embedding"\nsource = "file:e"\n${pace}`,
  );
  const expected = { stepMs: 20, tokenMs: 0.5, sequenceMs: 0 };
  assert.deepEqual(
    [...models, ...encoders].map((entry) => entry.pace),
    [expected, undefined, expected],
  );
  assert.throws(() => withToml('[[model]]\nname = "m"\npace = { step_ms = -1 }'), /model.0.pace.step_ms/);
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
  `;
  const [host] = withToml(text).gpuHosts;
  assert.deepEqual(
    host?.models.map((model) => [model.prefixCache, model.swapMemoryMb, model.swapDiskMb]),
    [
      [true, 256, 1024],
      [false, 0, 7],
    ],
  );
  assert.equal(host?.kvDirectory, path.join(home, 'kv', 'gpu-host-1'));
});

test('a CUDA model has a device, memory, precision, pages and a step deadline', () => {
  const text = '[[model]]\nname = "m"\nbackend = "cuda"\n';
  const modelOf = (lines: string, environment?: NodeJS.ProcessEnv) =>
    withToml(`${text}${lines}`, environment).gpuHosts[0]?.models[0];
  const { backend, precision, device, memoryMb, pages } = modelOf('')!;
  assert.deepEqual([backend, precision, device, memoryMb, pages], ['cuda', undefined, undefined, undefined, 0]);
  assert.equal(modelOf('pages = 77')?.pages, 77);
  assert.equal(modelOf('', { PIE_BACKEND: 'onnx' })?.pages, 0);
  const set = modelOf(
    'device = 1\nmemory_mb = 40000\nprecision = "float32"\npages = 0\nstep_deadline_s = 5\nwarm_up_s = 0',
  )!;
  const { stepDeadlineS, warmUpS } = set;
  assert.deepEqual([set.precision, set.device, set.memoryMb, set.pages], ['float32', 1, 40_000, 0]);
  assert.deepEqual([stepDeadlineS, warmUpS], [5, 0]);
  for (const narrow of ['int8', 'fp8', 'int4']) assert.equal(modelOf(`precision = "${narrow}"`)?.precision, narrow);
  assert.equal(set.kv, undefined);
  assert.equal(modelOf('kv = "fp8"')?.kv, 'fp8');
  assert.equal(set.dependentLaunch, undefined);
  assert.equal(modelOf('dependent_launch = false')?.dependentLaunch, false);
  assert.equal(set.sharedPrefixes, undefined);
  assert.equal(modelOf('shared_prefixes = false')?.sharedPrefixes, false);
  const elsewhere = modelOf('pages = 0', { PIE_BACKEND: 'onnx' })!;
  assert.deepEqual([elsewhere.backend, elsewhere.bits, elsewhere.pages], ['onnx', 32, 0]);
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
  assert.deepEqual(models('', '', { PIE_BACKEND: 'reference' }), [0, 0]);
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
  const assertRefused = (text: string, pattern: RegExp) => assert.throws(() => withToml(text), pattern);
  assertRefused(encoder, /generates text/);
  assertRefused(`[[model]]\nname = "minilm"\n${encoder}`, /same name/);
  assertRefused(`[[model]]\nname = "m"\naliases = ["minilm"]\n${encoder}`, /same name/);
  assertRefused(`[[model]]\nname = "m"\n${encoder}pages = 5\n`, /pages/);
  assertRefused(`[[model]]\nname = "m"\n${encoder.replace('embedding', 'vectors')}`, /kind/);
  assertRefused(`[[model]]\nname = "m"\n${encoder.replace('hf:a/', '')}`, /source/);
});
