import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Vectors } from '#wit/generated/host.ts';
import { NOTHING_COUNTED } from '../lifecycle/attempt-usage.ts';
import { TestGpuHost } from '../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../testing/inferlet.ts';
import { failureOf, value } from '../testing/outcome.ts';
import { TextService } from '../texts/service.ts';

describe('encoding calls of an inferlet', () => {
  const texts = new TextService({ maxWorkers: 1 });
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    host = await TestGpuHost.start({ encoder: 'small' });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    connection.close();
    await host.stop();
    await texts.close();
  });

  const open = (options: TestInferletOptions = {}) =>
    new TestInferlet(connection, { services: { texts }, encoders: ['small'], ...options });
  const embed = (guest: TestInferlet, words: readonly string[], name = '') =>
    guest.call<Promise<Outcome<Vectors>>>('embedding', 'embed', name, words);
  const textsEncoded = async () => (await connection.stats()).encoders[0]?.texts;

  it('count the tokens of an answer', async () => {
    const guest = open();
    const { size, tokens, values } = value(await embed(guest, ['king', 'queen of france']));
    assert.deepEqual([size, values.length, guest.inferlet.inputTokens], [32, 64, tokens]);
    await guest.end();
  });

  it('stop at the limit of tokens', async () => {
    const guest = open({ tokens: 5 });
    const { tokens } = value(await embed(guest, ['king of france', 'queen']));
    const before = await textsEncoded();
    assert.equal(failureOf(await embed(guest, ['king'])), 'limit-exceeded');
    assert.deepEqual([guest.inferlet.inputTokens, await textsEncoded()], [tokens, before]);
    await guest.end();
  });

  it('answer unavailable when the GPU host dies, and other inferlets go on after its restart', async () => {
    const guest = open();
    value(await embed(guest, ['king']));
    const calling = embed(guest, new Array<string>(256).fill('the king of france '.repeat(8)));
    await host.restart();
    assert.equal(failureOf(await calling), 'unavailable');
    assert.notEqual(guest.inferlet.lostDevice, undefined);
    await guest.end();
    while (!connection.connected) await new Promise((resolve) => setTimeout(resolve, 10));
    const next = open();
    value(await embed(next, ['queen']));
    await next.end();
  });

  it('end when the guest drops the future, in the worker or on the device', async () => {
    const [guest, quota] = [open({ tokens: 1_000_000 }), 1_000_000];
    guest.inferlet.tokens.allow(NOTHING_COUNTED, { left: quota, until: null });
    const text = 'the king of france '.repeat(8);
    const { tokens } = value(await embed(guest, [text]));
    const before = await textsEncoded();
    const counted = guest.inferlet.inputTokens;
    const calling = guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', ['queen']);
    TestInferlet.releaseFuture(calling);
    assert.equal(failureOf(await calling), 'closed');
    assert.deepEqual([guest.inferlet.inputTokens, await textsEncoded()], [counted, before]);
    // The call waits on the device behind those of many texts.
    const ahead = Array.from({ length: 6 }, () => embed(guest, new Array<string>(256).fill(text)));
    const waiting = guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', ['queen']);
    const sent = () => quota - guest.inferlet.tokens.quotaLeft > counted + ahead.length * 256 * tokens;
    while (!sent()) await new Promise((resolve) => setImmediate(resolve));
    TestInferlet.releaseFuture(waiting);
    assert.equal(failureOf(await waiting), 'closed');
    for (const each of ahead) value(await each);
    value(await embed(guest, ['queen']));
    await guest.end();
  });

  it('leave the queue of the workers when the guest drops their futures', async () => {
    const guest = open();
    const long = new Array<string>(256).fill('the king of france '.repeat(50));
    const ahead = embed(guest, long);
    const calls = [1, 2].map(() => guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', long));
    for (const call of calls) TestInferlet.releaseFuture(call);
    for (const call of calls) assert.equal(failureOf(await call), 'closed');
    // The call that came first is still with the worker.
    assert.equal(guest.inferlet.inputTokens, 0);
    value(await ahead);
    await guest.end();
  });

  it('do not reach the device when the inferlet ends while a worker tokenizes', async () => {
    const guest = open();
    const before = await textsEncoded();
    const calling = embed(guest, ['king']);
    await guest.end();
    assert.equal(failureOf(await calling), 'terminated');
    assert.deepEqual([guest.inferlet.inputTokens, await textsEncoded()], [0, before]);
  });
});
