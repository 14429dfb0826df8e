import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { StoreError } from '../store/errors.ts';
import { LogReads } from './log.ts';

const OUTAGE_MS = 1000;
/** Reads that a tenant may have under way. */
const TURNS = 16;
/** `isOver` of a caller that does not leave. */
const stays = () => false;
const unavailable = () => new StoreError('store-unavailable', 'Redis is away.');

/** Makes reads that the test ends by name, and a clock that the test moves. */
function testReads(t: TestContext) {
  const clock = { ms: 0 };
  // The test replaces `now` by hand, because a mock would keep the stack of each of the many calls.
  const { now } = performance;
  performance.now = () => clock.ms;
  t.after(() => {
    performance.now = now;
  });
  const reads = new LogReads<string>(OUTAGE_MS);
  const running = new Map<string, { readonly result: PromiseWithResolvers<string>; readonly giveUpAtMs: number }>();
  const begun: string[] = [];
  const read = (name: string, isOver = stays, tenant = 'a') =>
    reads.read(tenant, name, isOver, (giveUpAtMs) => {
      begun.push(name);
      const result = Promise.withResolvers<string>();
      running.set(name, { result, giveUpAtMs });
      return result.promise;
    });
  const end = async (name: string, error?: Error) => {
    const { result } = running.get(name) ?? assert.fail(`${name} does not run`);
    if (error) result.reject(error);
    else result.resolve(`${name}, read ${begun.filter((each) => each === name).length}`);
    await turn();
  };
  /** Takes all turns of a tenant with reads that go on until the test ends them. */
  const fill = (tenant = 'a') => Array.from({ length: TURNS }, (_, n) => read(`${tenant}${n}`, stays, tenant));
  const leftMs = (name: string) => (running.get(name)?.giveUpAtMs ?? Number.NaN) - clock.ms;
  return { clock, read, end, fill, begun, leftMs };
}

const failsUnavailable = (reads: readonly Promise<string>[]) =>
  Promise.all(reads.map((each) => assert.rejects(each, { code: 'store-unavailable' })));

describe('reads of logs', () => {
  it('callers that ask for the same read share it while it waits; a caller that asks later gets another one', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    void fill();
    const early = [read('log'), read('log'), read('log')];
    assert.equal(begun.length, TURNS);
    await end('a0');
    // The early read has begun and taken the free turn, so this one waits.
    const late = read('log');
    await end('log');
    assert.deepEqual(await Promise.all(early), Array(3).fill('log, read 1'));
    await end('log');
    assert.equal(await late, 'log, read 2', 'a read that has begun may miss what the caller knows of');
  });

  it('tenants share no read, and a tenant with one waiting read gets a turn before a tenant with many', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    // Together, four tenants have all turns.
    for (const tenant of ['a', 'b', 'c', 'd']) void fill(tenant);
    for (let n = 0; n < 100; n++) void read(`more${n}`, stays, 'a');
    void read('log', stays, 'a');
    void read('log', stays, 'e');
    await end('b0');
    assert.deepEqual(begun.slice(4 * TURNS), ['log'], 'the read of tenant e, since tenant a has all its turns');
    await end('a0');
    assert.equal(begun.at(-1), 'more0');
  });

  it('a read whose callers have all left is not made, and one caller that stays is enough', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    void fill();
    let hasLeft = false;
    const failure = failsUnavailable([read('left', () => hasLeft)]);
    const shared = [read('shared', () => hasLeft), read('shared')];
    hasLeft = true;
    await end('a0');
    await failure;
    assert.equal(begun.at(-1), 'shared');
    await end('shared');
    assert.deepEqual(await Promise.all(shared), Array(2).fill('shared, read 1'));
  });

  it('all turns are free again after six thousand callers have left at once', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    const running = fill();
    let hasLeft = false;
    const leftReads = Array.from({ length: 6000 }, (_, n) => read(`left${n}`, () => hasLeft));
    hasLeft = true;
    const failures = failsUnavailable(leftReads);
    for (let n = 0; n < TURNS; n++) await end(`a${n}`);
    await Promise.all([...running, failures]);
    for (let n = 0; n < TURNS + 1; n++) void read(`later${n}`);
    assert.equal(begun.length, 2 * TURNS);
  });

  it('a read has `OUTAGE_MS` for an answer from its turn on, however long it waited for the turn', async (t: TestContext) => {
    const { clock, read, end, fill, leftMs } = testReads(t);
    void fill();
    void read('later');
    clock.ms = 50_000;
    await end('a0');
    assert.equal(leftMs('later'), OUTAGE_MS);
  });

  it('in an outage, reads fail after the same wait, with a turn or without', async (t: TestContext) => {
    const { clock, read, end, fill, leftMs } = testReads(t);
    clock.ms = 100;
    const early = failsUnavailable([...fill(), read('early')]);
    clock.ms = 600;
    const late = failsUnavailable([read('late')]);
    clock.ms = 1100;
    await end('a0', unavailable());
    assert.equal(leftMs('late'), 500, 'until 1,000 ms after it was asked for');
    for (let n = 1; n < TURNS; n++) await end(`a${n}`, unavailable());
    await early;
    // When `late` fails, waiting reads that were asked for at least `OUTAGE_MS` ago fail too. `waiting` was asked for 500 ms ago and goes on.
    void fill('b');
    const waiting = read('waiting', stays, 'b');
    clock.ms = 1600;
    await end('late', unavailable());
    await late;
    await end('b0');
    await end('waiting');
    assert.equal(await waiting, 'waiting, read 1');
  });

  it('in an outage, a caller joins no read that was asked for long before, since that read fails earlier', async (t: TestContext) => {
    const { clock, read, end, fill } = testReads(t);
    const early = failsUnavailable([...fill(), read('log')]);
    clock.ms = 900;
    const late = read('log');
    clock.ms = 1000;
    for (let n = 0; n < TURNS; n++) await end(`a${n}`, unavailable());
    await early;
    await end('log');
    assert.equal(await late, 'log, read 1');
  });

  it('in an outage a read has at least half a second, and `OUTAGE_MS` again once Redis has answered', async (t: TestContext) => {
    const { clock, read, end, fill, leftMs } = testReads(t);
    const early = failsUnavailable([...fill()]);
    clock.ms = 10;
    const first = assert.rejects(read('first'), { code: 'invalid-argument' });
    void read('second');
    clock.ms = 1000;
    await end('a0', unavailable());
    assert.equal(leftMs('first'), 500, 'more than the 10 ms until its caller has waited 1,000 ms');
    await end('first', new StoreError('invalid-argument', 'There is no such invocation.'));
    await first;
    assert.equal(leftMs('second'), OUTAGE_MS);
    for (let n = 1; n < TURNS; n++) await end(`a${n}`, unavailable());
    await early;
    await end('second');
    void fill('b');
    void read('third', stays, 'b');
    clock.ms = 9000;
    await end('b0');
    assert.equal(leftMs('third'), OUTAGE_MS);
  });

  it('a read that fails for another reason fails alone', async (t: TestContext) => {
    const { read, end, fill } = testReads(t);
    const [first] = fill();
    const waiting = read('log');
    const failure = assert.rejects(first ?? assert.fail(), { code: 'invalid-argument' });
    await end('a0', new StoreError('invalid-argument', 'There is no such invocation.'));
    await failure;
    await end('log');
    assert.equal(await waiting, 'log, read 1');
  });
});
