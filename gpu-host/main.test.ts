import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { withLock } from './models/lock.ts';
import { cacheName, parseSource } from './models/source.ts';
import { randomAdapter, randomModel } from './models/testing/random-model.ts';
import { type DeviceClient, GpuHostConnection } from './protocol/client.ts';
import { generate, must, NONE, range, tagOf } from './testing/host.ts';

let directory: string;
let config: string;
let address: string;
const children: ChildProcess[] = [];

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'pie-m-'));
  const { config: shape } = await randomModel(join(directory, 'model'), { heads: 4, kvHeads: 2, headDim: 8 }, 3);
  await randomAdapter(join(directory, 'adapter'), shape, 4);
  address = join(directory, 's');
  config = join(directory, 'config.json');
  const model = {
    source: `file:${join(directory, 'model')}`,
    bits: 32,
    headBits: 32,
    pages: 16,
    pageSize: 8,
    maxBatchTokens: 64,
    maxBatchSequences: 8,
    threads: 1,
    swapMemoryMb: 1,
    swapDiskMb: 1,
    adapters: [{ name: 'pirate', source: `file:${join(directory, 'adapter')}` }],
    adapterMemoryMb: 1,
  };
  const models = [
    { ...model, name: 'by-onnx', backend: 'onnx' },
    { ...model, name: 'by-reference', backend: 'reference' },
  ];
  writeFileSync(
    config,
    JSON.stringify({ name: 'test', address, models, encoders: [], kvDirectory: join(directory, 'kv') }),
  );
});
after(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(directory, { recursive: true, force: true });
});

/** Starts the process and waits for its ready line. */
async function start(
  extra: NodeJS.ProcessEnv = {},
): Promise<{ child: ChildProcess; ready: { ready: boolean; address: string } }> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
    env: { ...process.env, PIE_GPU_HOST_CONFIG: config, XDG_CACHE_HOME: directory, ...extra },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  for await (const line of createInterface({ input: child.stdout! })) return { child, ready: JSON.parse(line) };
  throw new Error('the GPU host ended before it was ready');
}

/** Ends a process, which frees its address. */
async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

test('the process ends with its supervisor while it waits for a model', async () => {
  const models = join(directory, 'models');
  mkdirSync(models);
  const waiting = join(directory, 'waiting.json');
  const model = { name: 'never', source: 'hf:owner/never', backend: 'onnx', pages: 16 };
  writeFileSync(waiting, JSON.stringify({ name: 'waits', address, models: [model], encoders: [] }));
  await withLock(join(models, `.lock-${cacheName(parseSource(model.source))}`), {}, async () => {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
      env: { ...process.env, PIE_GPU_HOST_CONFIG: waiting, PIE_MODELS: models, [LIFELINE_VARIABLE]: 'stdin' },
      stdio: ['pipe', 'ignore', 'inherit'],
    });
    children.push(child);
    const exited = once(child, 'exit', { signal: AbortSignal.timeout(240_000) });
    child.stdin.end();
    assert.deepEqual(await exited, [1, null]);
  });
});

test('the process refuses a backend that it does not know', async () => {
  const unknown = join(directory, 'unknown.json');
  const [model] = JSON.parse(readFileSync(config, 'utf8')).models;
  const models = [{ ...model, backend: 'unknown' }];
  writeFileSync(unknown, JSON.stringify({ name: 'refuses', address, models, encoders: [] }));
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
    env: { ...process.env, PIE_GPU_HOST_CONFIG: unknown },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  children.push(child);
  const exited = once(child, 'exit');
  assert.match(await text(child.stderr), /no backend is named "unknown"/);
  assert.deepEqual(await exited, [1, null]);
});

test('the process reports when it is ready, serves all its models alike, and ends on SIGTERM', async () => {
  const { child, ready } = await start();
  assert.deepEqual({ ready: ready.ready, address: ready.address }, { ready: true, address });
  const connection = await GpuHostConnection.connect(address);
  assert.deepEqual(
    connection.models.map(({ name }) => name),
    ['by-onnx', 'by-reference'],
  );
  assert.deepEqual(
    connection.models.map(({ backend, precision, kv, device }) => ({ backend, precision, kv, device })),
    [
      { backend: 'onnx', precision: 'float32', kv: undefined, device: { name: 'CPU' } },
      { backend: 'reference', precision: 'float64', kv: undefined, device: { name: 'CPU' } },
    ],
  );
  assert.equal(connection.hostProcessId, child.pid);
  for (const { name, batches, stepTimes } of (await connection.stats()).models) {
    assert.equal(batches, 0, `${name} has computed for no inferlet`);
    assert.equal(stepTimes?.tokens[0]?.size, 1, `${name} measured its steps at the start`);
  }
  const refused = Promise.withResolvers<string>();
  const elsewhere = GpuHostConnection.open(address, { name: 'other', onRefused: refused.resolve });
  assert.match(await refused.promise, /is test, not other\./);
  elsewhere.close();
  const inferlet = connection.openInferlet({ id: 'both', maxPages: 16, arrival: 1 });
  const texts = await Promise.all(
    ['by-onnx', 'by-reference'].map((name) => generate(inferlet, inferlet.createQueue(name), [1, 5, 9], 10)),
  );
  assert.deepEqual(texts[0], texts[1]);
  const adapted = await Promise.all(
    connection.models.map(async ({ name, traits }) => {
      assert.ok(traits.includes('adapter'));
      const queue = inferlet.createQueue(name);
      must(await inferlet.ask(queue, { op: 'load-adapter', name: 'pirate' }));
      assert.deepEqual(must(await inferlet.ask(queue, { op: 'list-adapters' })), [
        { name: 'pirate', rank: 2, loaded: true },
      ]);
      const request = { tokens: range(1, 6), positions: range(0, 5), inPages: NONE, outPages: NONE, mask: undefined };
      const output = { tag: 'distributions' as const, val: 3 };
      const result = must(
        await inferlet.ask(queue, { op: 'step', request: { ...request, rows: 1, output, adapter: 'pirate' } }),
      );
      return result.distributions[0]!.tokens;
    }),
  );
  assert.deepEqual(adapted[0], adapted[1]);
  assert.deepEqual(
    (await connection.stats()).models.map(({ backend }) => backend),
    ['onnx', 'reference'],
  );
  const lost = new Promise<string>((resolve) => connection.onLost(resolve));
  child.kill('SIGTERM');
  const [code] = await once(child, 'exit');
  assert.equal(code, 0);
  assert.match(await lost, /going down/);
  connection.close();
});

test('calls to a killed host fail, and the runtime connects to the next host at its address', async () => {
  const { child } = await start();
  const connection = await GpuHostConnection.connect(address);
  const inferlet = connection.openInferlet({ id: 'x', maxPages: 16, arrival: 1 });
  const queue = inferlet.createQueue('by-onnx');
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'ok');
  const again = new Promise<void>((resolve) => connection.onReady(resolve));
  const { hostId } = connection;
  await end(child);
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'unavailable');
  const next = await start();
  await again;
  assert.ok(hostId && connection.hostId && connection.hostId !== hostId, 'the id of another process');
  const fresh = connection.openInferlet({ id: 'y', maxPages: 16, arrival: 2 });
  assert.equal((await generate(fresh, fresh.createQueue('by-onnx'), [1, 5], 4)).length, 4);
  connection.close();
  await end(next.child);
});

test('persistent exports outlive a killed host, bit for bit; an export of other weights is refused', async () => {
  const prompt = range(1, 20);
  const probe = async (inferlet: DeviceClient, queue: number, pages: Uint32Array) => {
    const request = { tokens: Uint32Array.of(7), positions: Uint32Array.of(19), inPages: pages, outPages: NONE };
    const output = { tag: 'distributions' as const, val: 20 };
    return must(await inferlet.ask(queue, { op: 'step', request: { ...request, mask: undefined, rows: 1, output } }))
      .distributions;
  };
  const first = await start();
  let connection = await GpuHostConnection.connect(address);
  let inferlet = connection.openInferlet({ id: 'exports', tenant: 't', maxPages: 16, arrival: 1 });
  const expectedByModel = new Map<string, unknown>();
  for (const { name } of connection.models) {
    const queue = inferlet.createQueue(name);
    const pages = must(inferlet.allocatePages(queue, 3));
    const request = {
      tokens: prompt,
      positions: range(0, 19),
      inPages: NONE,
      outPages: pages,
      mask: undefined,
      rows: 0,
    };
    must(await inferlet.ask(queue, { op: 'step', request: { ...request, output: { tag: 'none' } } }));
    expectedByModel.set(name, await probe(inferlet, queue, pages));
    must(await inferlet.ask(queue, { op: 'export-pages', pages, name: 'kept/one', persistent: true }));
  }
  await end(first.child);
  connection.close();

  const second = await start();
  connection = await GpuHostConnection.connect(address);
  inferlet = connection.openInferlet({ id: 'imports', tenant: 't', maxPages: 16, arrival: 1 });
  for (const [name, expected] of expectedByModel) {
    const queue = inferlet.createQueue(name);
    const imported = must(await inferlet.importPages(queue, 'kept/one'));
    assert.deepEqual([imported.pages.length, imported.tokens, imported.nextPosition], [3, 19, 19]);
    assert.deepEqual(await probe(inferlet, queue, imported.pages), expected);
  }
  connection.close();
  second.child.kill('SIGTERM');
  await once(second.child, 'exit');

  await randomModel(join(directory, 'model'), { heads: 4, kvHeads: 2, headDim: 8 }, 4);
  const third = await start();
  connection = await GpuHostConnection.connect(address);
  inferlet = connection.openInferlet({ id: 'is refused', tenant: 't', maxPages: 16, arrival: 1 });
  const refused = await inferlet.importPages(inferlet.createQueue('by-onnx'), 'kept/one');
  assert.equal(refused.tag === 'err' && refused.val.tag, 'invalid-argument');
  assert.match(refused.tag === 'err' ? refused.val.val : '', /model/);
  connection.close();
  third.child.kill('SIGTERM');
  await once(third.child, 'exit');
});

/** The log of a process that does not start with these models. */
async function refusalOf(models: unknown): Promise<string> {
  const settings = JSON.parse(readFileSync(config, 'utf8'));
  writeFileSync(join(directory, 'other.json'), JSON.stringify({ ...settings, models }));
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
    env: { ...process.env, PIE_GPU_HOST_CONFIG: join(directory, 'other.json') },
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  children.push(child);
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const [code] = await once(child, 'close');
  assert.equal(code, 1);
  return log;
}

test('the process does not start with a model that it cannot compute, and names the models that it can', async () => {
  const other = join(directory, 'gpt');
  cpSync(join(directory, 'model'), other, { recursive: true });
  const shape = JSON.parse(readFileSync(join(other, 'config.json'), 'utf8'));
  writeFileSync(join(other, 'config.json'), JSON.stringify({ ...shape, model_type: 'gpt2' }));
  const [model] = JSON.parse(readFileSync(config, 'utf8')).models;
  assert.match(
    await refusalOf([{ ...model, source: `file:${other}` }]),
    /model "by-onnx": .*gpt2.*\(supported model types: llama, /,
  );
});

test('the process does not start with an adapter that it cannot compute, and names the adapter and the reason', async () => {
  const adapter = join(directory, 'adapter', 'adapter_config.json');
  const file = JSON.parse(readFileSync(adapter, 'utf8'));
  const model = JSON.parse(readFileSync(config, 'utf8')).models[1];
  writeFileSync(adapter, JSON.stringify({ ...file, use_dora: true }));
  assert.match(
    await refusalOf([model]),
    /adapter "pirate" of the model "by-reference" \(file:.*"use_dora": DoRA is not/,
  );
  writeFileSync(adapter, JSON.stringify(file));
  const adapters = [{ name: 'big', source: `file:${join(directory, 'adapter')}` }];
  assert.match(
    await refusalOf([{ ...model, adapters, adapterMemoryMb: 0 }]),
    /"big".*1 MiB do not fit adapter_memory_mb/,
  );
});

test('the process ends when its supervisor is gone', async () => {
  const { child } = await start({ [LIFELINE_VARIABLE]: 'stdin' });
  child.stdin!.end();
  await once(child, 'exit');
});
