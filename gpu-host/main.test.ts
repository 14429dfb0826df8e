import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { randomModel } from './models/random-model.ts';
import { GpuHostConnection } from './protocol/client.ts';
import { generate, tagOf } from './testing/host.ts';

let directory: string;
let config: string;
let address: string;

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'pie-m-'));
  await randomModel(join(directory, 'model'), { heads: 4, kvHeads: 2, headDim: 8 }, 3);
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
  };
  const models = [
    { ...model, name: 'by-onnx', backend: 'onnx' },
    { ...model, name: 'by-reference', backend: 'reference' },
  ];
  writeFileSync(config, JSON.stringify({ name: 'test', address, models, kvDirectory: join(directory, 'kv') }));
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** Starts the process and waits for its ready line. */
async function start(
  extra: NodeJS.ProcessEnv = {},
): Promise<{ child: ChildProcess; ready: { ready: boolean; address: string } }> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
    env: { ...process.env, PIE_GPU_HOST_CONFIG: config, XDG_CACHE_HOME: directory, ...extra },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout! });
  const [line] = (await once(lines, 'line')) as [string];
  return { child, ready: JSON.parse(line) };
}

test('says when it is ready, serves all its models alike, and ends on SIGTERM', async () => {
  const { child, ready } = await start();
  assert.deepEqual({ ready: ready.ready, address: ready.address }, { ready: true, address });
  const connection = await GpuHostConnection.connect(address);
  assert.deepEqual(
    connection.models.map(({ name }) => name),
    ['by-onnx', 'by-reference'],
  );
  assert.equal(connection.hostProcessId, child.pid);
  const inferlet = connection.openInferlet({ id: 'both', maxPages: 16, arrival: 1 });
  const texts = await Promise.all(
    ['by-onnx', 'by-reference'].map((name) => generate(inferlet, inferlet.createQueue(name), [1, 5, 9], 10)),
  );
  assert.deepEqual(texts[0], texts[1]);
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

test('a killed host leaves its runtime with errors, and the next one takes its address', async () => {
  const { child } = await start();
  const connection = await GpuHostConnection.connect(address);
  const inferlet = connection.openInferlet({ id: 'x', maxPages: 16, arrival: 1 });
  const queue = inferlet.createQueue('by-onnx');
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'ok');
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'unavailable');
  const next = await start();
  while (!connection.connected) await new Promise((resolve) => setTimeout(resolve, 5));
  const fresh = connection.openInferlet({ id: 'y', maxPages: 16, arrival: 2 });
  assert.equal((await generate(fresh, fresh.createQueue('by-onnx'), [1, 5], 4)).length, 4);
  connection.close();
  next.child.kill('SIGKILL');
});

test('ends when its supervisor is gone', async () => {
  const { child } = await start({ [LIFELINE_VARIABLE]: 'stdin' });
  child.stdin!.end();
  await once(child, 'exit');
});
