import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Vectors } from '#wit/generated/host.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import { TextService } from '../../texts/service.ts';

const TEXT = 'the king of france '.repeat(12);
/** Texts that the GPU host encodes in many batches. */
const MANY_TEXTS = new Array<string>(256).fill(TEXT);
const CALLS = 16;

describe('inputs of encoders', () => {
  const texts = new TextService({ maxWorkers: 1 });
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  /** Tokens that the host's encoder had computed before the test. */
  let computedBefore = 0;
  /** Tokens of `MANY_TEXTS`. */
  let manyTokens = 0;
  const tokensOnHost = async () => (await connection.stats()).encoders[0]?.tokens ?? 0;
  const computed = async () => (await tokensOnHost()) - computedBefore;
  const open = (options: TestInferletOptions = {}, to = connection) =>
    new TestInferlet(to, { services: { texts }, encoders: ['small'], tokens: 10_000_000, ...options });
  const embed = (guest: TestInferlet, words: readonly string[] = MANY_TEXTS) =>
    guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', words);
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  before(async () => {
    host = await TestGpuHost.start({ encoder: 'small' });
    connection = await GpuHostConnection.connect(host.address);
    const guest = open();
    manyTokens = MANY_TEXTS.length * value(await embed(guest, [TEXT])).tokens;
    await guest.end();
  });
  beforeEach(async () => {
    computedBefore = await tokensOnHost();
  });
  after(async () => {
    connection.close();
    await host.stop();
    await texts.close();
  });

  /** Starts calls of many batches each, and waits until the host has computed the first batch. */
  async function startCalls(guest: TestInferlet): Promise<Promise<Outcome<Vectors>>[]> {
    const calls = Array.from({ length: CALLS }, () => embed(guest));
    while (guest.inferlet.inputTokens === 0) await turn();
    return calls;
  }

  /** The outcome of the last call, once every call has an outcome. The first calls may have succeeded. */
  const lastOf = async (calls: Promise<Outcome<Vectors>>[]) => (await Promise.all(calls)).at(-1) as Outcome<Vectors>;

  it('are billed with their answer, and not again at the end', async () => {
    const guest = open();
    const { tokens } = value(await embed(guest));
    assert.equal(guest.inferlet.inputTokens, tokens);
    // The guest drops the future after the host has computed every batch.
    const dropped = embed(guest);
    value(await dropped);
    TestInferlet.releaseFuture(dropped);
    await guest.end();
    assert.deepEqual([guest.inferlet.inputTokens, await computed()], [2 * tokens, 2 * tokens]);
  });

  it('are billed as far as they were computed when the guest drops the futures in the middle', async () => {
    const guest = open();
    const calls = await startCalls(guest);
    for (const call of calls) TestInferlet.releaseFuture(call);
    await Promise.all(calls);
    await guest.end();
    const billed = guest.inferlet.inputTokens;
    assert.equal(billed, await computed());
    assert.ok(billed < CALLS * manyTokens, `${billed} of ${CALLS * manyTokens} tokens`);
  });

  it('are not billed when the guest drops the future before their batch', async () => {
    const [ahead, behind] = [open(), open()];
    const calls = await startCalls(ahead);
    // The paused host computes no batch, so the call of `behind` queues after the calls of `ahead`.
    host.pause();
    const waiting = embed(behind, MANY_TEXTS.slice(0, 8));
    while (behind.inferlet.tokens.charged === 0) await turn();
    TestInferlet.releaseFuture(waiting);
    host.resume();
    assert.equal(failureOf(await waiting), 'closed');
    for (const call of calls) value(await call);
    await Promise.all([ahead.end(), behind.end()]);
    assert.equal(ahead.inferlet.inputTokens + behind.inferlet.inputTokens, await computed());
    assert.equal(ahead.inferlet.inputTokens, CALLS * manyTokens);
  });

  it('are billed as far as they were computed when their inferlet ends', async () => {
    const guest = open();
    const calls = await startCalls(guest);
    await guest.end();
    // A worker may not have tokenized the texts of the last call yet.
    assert.match(failureOf(await lastOf(calls)) ?? '', /^(cancelled|terminated)$/);
    const billed = guest.inferlet.inputTokens;
    assert.equal(billed, await computed());
    assert.ok(billed < CALLS * manyTokens, `${billed} of ${CALLS * manyTokens} tokens`);
  });

  it('are billed as far as they were computed when the host terminates their inferlet', async () => {
    const guest = open({ id: 'again' });
    const calls = await startCalls(guest);
    // A newer attempt of the same invocation makes the host terminate the older one.
    const newer = connection.openInferlet({ id: 'again', epoch: 1, maxPages: 0, arrival: 1 });
    assert.equal(failureOf(await lastOf(calls)), 'terminated');
    await Promise.all([guest.end(), newer.close()]);
    const billed = guest.inferlet.inputTokens;
    assert.equal(billed, await computed());
    assert.ok(billed < CALLS * manyTokens, `${billed} of ${CALLS * manyTokens} tokens`);
  });

  it('count in full against the quota while they are computed', async () => {
    const guest = open();
    const { tokens } = guest.inferlet;
    tokens.grant(1.5 * manyTokens);
    const first = embed(guest);
    while (tokens.charged === 0) await turn();
    assert.equal(tokens.charged, manyTokens);
    const second = embed(guest);
    while (!tokens.isHeld) await turn();
    tokens.refuseQuota(handlerError('limit-exceeded', 'the quota is used up'));
    assert.equal(failureOf(await second), 'limit-exceeded');
    TestInferlet.releaseFuture(first);
    await first;
    await guest.end();
    assert.equal(guest.inferlet.inputTokens, await computed());
  });

  it('are billed up to the last report of their host when the host dies', async () => {
    const guest = open();
    const calls = await startCalls(guest);
    // The host reports every computed token to the inferlet before it answers the call for its statistics.
    const known = await computed();
    await host.restart();
    assert.equal(failureOf(await lastOf(calls)), 'unavailable');
    const billed = guest.inferlet.inputTokens;
    assert.ok(billed >= known && billed < CALLS * manyTokens, `${known}, ${billed} of ${CALLS * manyTokens} tokens`);
    await guest.end();
    assert.equal(guest.inferlet.inputTokens, billed);
    while (!connection.connected) await new Promise((resolve) => setTimeout(resolve, 10));
    // The restarted host counts from 0, and the next attempt is billed for its own tokens only.
    const next = open();
    value(await embed(next));
    await next.end();
    assert.deepEqual([next.inferlet.inputTokens, await tokensOnHost()], [manyTokens, manyTokens]);
  });
});
