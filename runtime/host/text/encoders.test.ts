import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Scores, Vectors } from '#wit/generated/host.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import { TextService } from '../../texts/service.ts';
import { inferletBytes } from '../session/holdings.ts';

/** Bytes of results that an inferlet may leave unread. */
const MAX_UNREAD = 32 * 2 ** 20;

describe('encoding calls of an inferlet', () => {
  const texts = new TextService({ maxWorkers: 1 });
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  before(async () => {
    host = await TestGpuHost.start({ encoder: 'small', reranker: 'ranker' });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    connection.close();
    await host.stop();
    await texts.close();
  });

  const open = (options: TestInferletOptions = {}) =>
    new TestInferlet(connection, { services: { texts }, encoders: ['small', 'ranker'], ...options });
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
    const guest = open({ tokens: 1_000_000 });
    const text = 'the king of france '.repeat(8);
    const { tokens } = value(await embed(guest, [text]));
    const before = await textsEncoded();
    const counted = guest.inferlet.inputTokens;
    const calling = guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', ['queen']);
    TestInferlet.releaseFuture(calling);
    assert.equal(failureOf(await calling), 'closed');
    assert.deepEqual([guest.inferlet.inputTokens, await textsEncoded()], [counted, before]);
    // The paused host computes nothing, so the call with one text queues after the calls with many texts.
    host.pause();
    const ahead = Array.from({ length: 6 }, () => embed(guest, new Array<string>(256).fill(text)));
    const waiting = guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', ['queen']);
    // The tokens of a call leave the quota when the call is sent.
    const isWaitingSent = () => guest.inferlet.tokens.charged > counted + ahead.length * 256 * tokens;
    while (!isWaitingSent()) await new Promise((resolve) => setImmediate(resolve));
    TestInferlet.releaseFuture(waiting);
    host.resume();
    assert.equal(failureOf(await waiting), 'closed');
    for (const each of ahead) value(await each);
    value(await embed(guest, ['queen']));
    await guest.end();
  });

  it('count vectors and scores as unread until the guest has read or dropped them, and refuse more than 32 MiB', async () => {
    const bytes = inferletBytes();
    const guest = open({ services: { texts, bytes } });
    const { unread } = guest.inferlet;
    const unreadEmbed = (...words: string[]) =>
      guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', words);
    const unreadRerank = (...documents: string[]) =>
      guest.callOnly<Promise<Outcome<Scores>>>('rerank', 'rerank', '', 'who?', documents);
    const [vectors, scores] = [unreadEmbed('king', 'queen'), unreadRerank('king', 'queen', 'paris')];
    value(await vectors);
    value(await scores);
    // Two vectors of 32 values and three scores; a value has 4 bytes.
    assert.equal(unread.bytes, 2 * 32 * 4 + 3 * 4);
    // Other results leave room for two vectors and two scores.
    const otherBytes = MAX_UNREAD - unread.bytes - 2 * (32 + 1) * 4;
    unread.count(otherBytes);
    const before = await textsEncoded();
    // Each of two calls would fit alone. The device computes both, and the first answer takes the room.
    const both = await Promise.all([unreadEmbed('a', 'b'), unreadEmbed('a', 'b')]);
    assert.deepEqual(both.map(({ tag }) => tag).sort(), ['err', 'ok']);
    for (const outcome of both)
      if (outcome.tag === 'err') assert.match(outcome.val.val, /were not read .*; read or drop/);
    value(await unreadRerank('a', 'b'));
    assert.equal(unread.bytes, MAX_UNREAD);
    assert.equal(await textsEncoded(), (before ?? 0) + 4);
    const billed = guest.inferlet.inputTokens;
    assert.equal(failureOf(await unreadEmbed('c')), 'limit-exceeded');
    assert.equal(failureOf(await unreadRerank('c')), 'limit-exceeded');
    assert.deepEqual(
      [await textsEncoded(), guest.inferlet.inputTokens],
      [(before ?? 0) + 4, billed],
      'the refused calls cost nothing',
    );
    TestInferlet.releaseFuture(vectors);
    TestInferlet.releaseFuture(scores);
    assert.equal(unread.bytes, MAX_UNREAD - 2 * 32 * 4 - 3 * 4);
    const dropped = unreadEmbed('d');
    TestInferlet.releaseFuture(dropped);
    assert.equal(failureOf(await dropped), 'closed');
    value(await embed(guest, ['e']));
    assert.equal(unread.bytes, MAX_UNREAD - 2 * 32 * 4 - 3 * 4);
    await guest.end();
    assert.equal(bytes.total, 0);
  });

  it('leave the queue of the workers when the guest drops their futures', async () => {
    const guest = open();
    const long = new Array<string>(256).fill('the king of france '.repeat(50));
    const ahead = embed(guest, long);
    const calls = [1, 2].map(() => guest.callOnly<Promise<Outcome<Vectors>>>('embedding', 'embed', '', long));
    for (const call of calls) TestInferlet.releaseFuture(call);
    for (const call of calls) assert.equal(failureOf(await call), 'closed');
    // The worker still tokenizes the texts of the first call, so no token is counted yet.
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
