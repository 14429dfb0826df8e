import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';

const range = (length: number) => Uint32Array.from({ length }, (_, i) => i);

async function failure(outcome: Promise<Outcome<unknown>>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? settled.val.tag : 'ok';
}

test('each `forward` counts its embeds as inputs; the first `forward` of an embed was already counted when the embed was made', async (t) => {
  const host = await TestGpuHost.start();
  t.after(() => host.stop());
  const connection = await GpuHostConnection.connect(host.address);
  t.after(() => connection.close());
  const guest = new TestInferlet(connection, { tokens: 100 });
  const embeds = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, 41));
  const [inputs, states] = [embeds.slice(0, 40), embeds.slice(40)];
  const calls = () => guest.queue.device?.callsOn(guest.queue.id);
  const none = new Uint32Array(0);
  const forward = (from: Uint32Array) =>
    guest.call('forward', 'forward', guest.queue, none, from, none, states, undefined);
  guest.call('input-text', 'embed-text', guest.queue, range(40), range(40), inputs);
  forward(inputs.subarray(0, 10));
  forward(inputs.subarray(10));
  assert.equal(guest.inferlet.inputTokens, 40);
  // These inputs count again, and the state counts as one more.
  forward(inputs);
  forward(states);
  assert.equal(guest.inferlet.inputTokens, 40 + 40 + 1);
  forward(inputs);
  assert.equal(await failure(guest.queue.synchronize()), 'ok');
  const before = calls();
  forward(inputs);
  assert.equal(calls(), before, 'a call beyond the limit does not reach the device');
  assert.equal(await failure(guest.queue.synchronize()), 'limit-exceeded');
  assert.equal(guest.inferlet.inputTokens, 81 + 40);
  await guest.end();
});

test('once an invocation has used up its tokens, inputs, their `forward` and calls for its output are refused', async (t) => {
  const host = await TestGpuHost.start();
  t.after(() => host.stop());
  const connection = await GpuHostConnection.connect(host.address);
  t.after(() => connection.close());
  const guest = new TestInferlet(connection, { tokens: 100 });
  const embeds = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, 203));
  const calls = () => guest.queue.device?.callsOn(guest.queue.id);
  const embed = (from: number) =>
    guest.call('input-text', 'embed-text', guest.queue, range(101), range(101), embeds.slice(from, from + 101));
  embed(0);
  const before = calls();
  embed(101);
  assert.equal(calls(), before, 'the refused call does not reach the device');
  assert.equal(guest.inferlet.inputTokens, 101);
  const states = embeds.slice(202);
  const none = new Uint32Array(0);
  guest.call('forward', 'forward', guest.queue, none, embeds.slice(101, 202), none, states, undefined);
  assert.equal(await failure(guest.queue.synchronize()), 'limit-exceeded');
  assert.equal(await failure(guest.queue.synchronize()), 'ok');
  const entropy = guest.call<Promise<Outcome<number>>>('output-text', 'entropy', guest.queue, states[0] ?? 0);
  assert.equal(await failure(entropy), 'limit-exceeded');
  await guest.end();
});
