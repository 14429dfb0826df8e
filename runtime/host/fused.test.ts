import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { RunChunk } from '#wit/generated/host.ts';
import { TestGpuHost } from '../testing/gpu-host.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import type { DeviceRun } from './fused.ts';

function value<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'ok') return outcome.val;
  assert.fail(`${outcome.val.tag}: ${outcome.val.val}`);
}

test('a run keeps its queue until it is dropped itself', async () => {
  const host = await TestGpuHost.start();
  const connection = await GpuHostConnection.connect(host.address);
  const guest = new TestInferlet(connection);
  const { queue } = guest;
  const queues = async () => (await connection.stats()).models[0]?.queues;
  const next = (run: DeviceRun) => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
  const start = (maxTokens: number) => {
    const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', queue, 8));
    const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
    const request = { token: 1, position: 0, pages, maxTokens, sampler, stopTokens: new Uint32Array(0) };
    return guest.call<DeviceRun>('fused', '[constructor]run', queue, request);
  };
  const [first, second] = [start(80), start(80)];
  guest.call('queue', '[resource-drop]queue', queue);
  for (const run of [first, second]) {
    for (let finished: string | undefined; !finished; ) finished = value(await next(run)).finished;
  }
  // Each counts once, however often it is dropped.
  for (let i = 0; i < 3; i++) guest.call('fused', '[resource-drop]run', first);
  value(await queue.settle());
  assert.equal(await queues(), 1, 'the second one keeps it');
  guest.call('fused', '[resource-drop]run', second);
  // It closes after its calls.
  while ((await queues()) !== 0);
  assert.equal(connection.connected, true);
  await guest.end();
  connection.close();
  await host.stop();
});
