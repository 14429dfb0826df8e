import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { StoreError } from '../store/errors.ts';
import { LogReads } from './log-reads.ts';

const OUTAGE_MS = 1000;
const stays = () => false;
const unavailable = () => new StoreError('store-unavailable', 'Redis is away.');

/** Reads that the test ends by name, and a clock that the test moves. */
function testReads(t: TestContext) {
  const clock = { ms: 0 };
  t.mock.method(performance, 'now', () => clock.ms);
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
  /** Takes the four turns of a tenant. */
  const fill = (tenant = 'a') => Array.from({ length: 4 }, (_, n) => read(`${tenant}${n}`, stays, tenant));
  return { clock, read, end, fill, begun, giveUpAtMs: (name: string) => running.get(name)?.giveUpAtMs };
}

describe('reads of logs', () => {
  it('callers that ask for the same read while it waits share it, and a caller that comes later gets another one', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    void fill();
    const early = [read('log'), read('log'), read('log')];
    assert.deepEqual(begun, ['a0', 'a1', 'a2', 'a3'], 'a tenant has four reads at once');
    await end('a0');
    const late = read('log');
    await end('log');
    assert.deepEqual(await Promise.all(early), Array(3).fill('log, read 1'));
    await end('log');
    assert.equal(await late, 'log, read 2', 'a read that has begun may miss what the caller knows of');
  });

  it('tenants do not share a read, and one that waits gets a turn before the next read of a tenant with many', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    for (const tenant of ['a', 'b', 'c', 'd']) void fill(tenant);
    for (let n = 4; n < 100; n++) void read(`a${n}`);
    void read('log', stays, 'a');
    void read('log', stays, 'e');
    await end('b0');
    assert.deepEqual(begun.slice(16), ['log'], 'the read of tenant e: tenant a has its four');
    await end('a0');
    assert.equal(begun.at(-1), 'a4');
  });

  it('a read whose callers have all left is not made, and one caller that stays is enough', async (t: TestContext) => {
    const { read, end, fill, begun } = testReads(t);
    void fill();
    let hasLeft = false;
    const [left, other] = [read('left', () => hasLeft), read('shared', () => hasLeft)];
    const stayed = read('shared');
    hasLeft = true;
    const failure = assert.rejects(left, { code: 'store-unavailable' });
    await end('a0');
    await failure;
    assert.equal(begun.at(-1), 'shared');
    await end('shared');
    assert.deepEqual(await Promise.all([other, stayed]), Array(2).fill('shared, read 1'));
  });

  it('a read has the whole time for an outage from its turn on, however long it waited for the turn', async (t: TestContext) => {
    const { clock, read, end, fill, giveUpAtMs } = testReads(t);
    void fill();
    void read('later');
    clock.ms = 50_000;
    await end('a0');
    assert.equal(giveUpAtMs('later'), 50_000 + OUTAGE_MS);
  });

  it('in an outage, all reads give up after the same wait, whether they had a turn or not', async (t: TestContext) => {
    const { clock, read, end, fill, giveUpAtMs } = testReads(t);
    clock.ms = 100;
    const running = fill();
    const failures = [...running, read('asked before the outage was known', stays)].map((each) =>
      assert.rejects(each, { code: 'store-unavailable' }),
    );
    clock.ms = 900;
    void read('asked in the outage');
    clock.ms = 1100;
    for (const name of ['a0', 'a1', 'a2', 'a3']) await end(name, unavailable());
    await Promise.all(failures);
    assert.equal(giveUpAtMs('asked before the outage was known'), undefined);
    assert.equal(giveUpAtMs('asked in the outage'), 900 + OUTAGE_MS);
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
