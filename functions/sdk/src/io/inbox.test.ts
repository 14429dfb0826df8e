import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Inbox } from './inbox.ts';

const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(String, (error) => error.code ?? String(error));

/** A source whose reads the test answers, in order. */
function source() {
  const reads: PromiseWithResolvers<string>[] = [];
  const take = () => {
    const read = Promise.withResolvers<string>();
    reads.push(read);
    return read.promise;
  };
  return { reads, take };
}

/** Waits for a value, aborts the wait, and returns the code of its error. */
const aborted = (inbox: Inbox<string>) => {
  const controller = new AbortController();
  const waiting = codeOf(inbox.next({ signal: controller.signal }));
  controller.abort();
  return waiting;
};

describe('an inbox', () => {
  it('gives the next caller the value of a read whose caller has aborted its wait', async () => {
    const { reads, take } = source();
    const inbox = new Inbox(take);
    assert.equal(await aborted(inbox), 'cancelled');
    // The next caller takes over the pending read.
    const next = inbox.next();
    reads[0]?.resolve('one');
    assert.equal(await next, 'one');
    assert.equal(await aborted(inbox), 'cancelled');
    reads[1]?.resolve('two');
    await new Promise(setImmediate);
    assert.equal(inbox.idle, false);
    assert.equal(await inbox.next(), 'two');
    assert.equal(reads.length, 2);
    assert.ok(inbox.idle);
    assert.equal(await codeOf(inbox.next({ signal: AbortSignal.abort() })), 'cancelled');
    assert.equal(reads.length, 2);
  });

  it('ends a read that no caller waits for, and begins another one for the next caller', async () => {
    const { reads, take } = source();
    const ended: number[] = [];
    const inbox = new Inbox((signal) => {
      const read = reads.length;
      const taken = take();
      signal.addEventListener('abort', () => {
        ended.push(read);
        reads[read]?.reject(signal.reason);
      });
      return taken;
    });
    const controller = new AbortController();
    // Two callers wait for the first read. One leaves, and the other one keeps the read going.
    const [leaving, waiting] = [inbox.next({ signal: controller.signal }), inbox.next()].map(codeOf);
    controller.abort();
    assert.equal(await leaving, 'cancelled');
    assert.deepEqual(ended, []);
    reads[0]?.resolve('one');
    assert.equal(await waiting, 'one');
    assert.equal(await aborted(inbox), 'cancelled');
    // This caller comes before the inbox knows that the aborted read has ended.
    const next = inbox.next();
    await new Promise(setImmediate);
    assert.deepEqual(ended, [1]);
    reads[2]?.resolve('two');
    assert.equal(await next, 'two');
    assert.ok(inbox.idle);
  });

  it('serves waiting callers in order, with one read at a time, and reports each failure once', async () => {
    const { reads, take } = source();
    const inbox = new Inbox(take);
    const controller = new AbortController();
    const waits = [inbox.next(), inbox.next({ signal: controller.signal }), inbox.next(), inbox.next()].map(codeOf);
    controller.abort();
    assert.equal(await waits[1], 'cancelled');
    for (const [i, value] of ['a', undefined, 'c'].entries()) {
      assert.equal(reads.length, i + 1);
      if (value === undefined) reads[i]?.reject(new Error('b'));
      else reads[i]?.resolve(value);
      await new Promise(setImmediate);
    }
    assert.deepEqual(await Promise.all(waits), ['a', 'cancelled', 'Error: b', 'c']);
  });

  it('gives a value that no caller wants to `unwanted`, and keeps the value when `unwanted` fails', async () => {
    const { reads, take } = source();
    const unwantedValues: string[] = [];
    const inbox = new Inbox(take, async (value) => {
      if (unwantedValues.length > 0) throw new Error('full');
      unwantedValues.push(value);
    });
    for (const value of ['one', 'two']) {
      assert.equal(await aborted(inbox), 'cancelled');
      reads.at(-1)?.resolve(value);
      await new Promise(setImmediate);
    }
    assert.deepEqual(unwantedValues, ['one']);
    assert.equal(await inbox.next(), 'two');
    assert.equal(reads.length, 2);
  });
});
