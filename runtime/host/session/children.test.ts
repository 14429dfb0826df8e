import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { err, ok } from '#gpu-host/protocol/errors.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import type { ChildLauncher, RunningChild } from '../services/services.ts';

const MIB = 1 << 20;
/** Unread answers of one MiB that one inferlet may have: 32 MiB in all. */
const MAX_UNREAD_ANSWERS = 32;

/** Launches children that end at once with a result of one MiB, and records the calls of their methods. */
function launcher(over: Partial<RunningChild>) {
  const calls: string[] = [];
  const child: RunningChild = {
    id: 'child',
    ended: Promise.resolve(),
    ending: async (refusal) => {
      calls.push('ending');
      const refused = refusal(MIB);
      return refused ? err(refused) : ok({ tag: 'success', val: 'x'.repeat(MIB) });
    },
    send: async () => ok(undefined),
    closeInbox: async () => void calls.push('close'),
    messages: () => ({ next: async () => ({ tag: 'text', val: 'again' }), close: () => void calls.push('unfollow') }),
    cancel: () => void calls.push('cancel'),
    ...over,
  };
  const children: ChildLauncher = { launch: async () => ok(child), stop: () => undefined };
  return { calls, children };
}

function parent(over: Partial<RunningChild> = {}) {
  const { calls, children } = launcher(over);
  const guest = new TestInferlet(null, { own: { children } });
  const launch = () => guest.call<object>('children', '[constructor]child', 'x', '{}');
  const callChild = <T>(child: object, method: string) =>
    guest.callOnly<Promise<T>>('children', `[method]child.${method}`, child);
  return { guest, calls, launch, callChild };
}

describe('a child', () => {
  it('passes on only the first close of its inbox', async () => {
    const { guest, calls, launch, callChild } = parent();
    const child = launch();
    for (let i = 0; i < 1000; i++) void callChild(child, 'close');
    await callChild(child, 'started');
    await guest.end();
    assert.equal(calls.filter((what) => what === 'close').length, 1);
  });

  it('counts against the bound until it is dropped or its parent ends; the subscription to its messages ends at the same time', async () => {
    const { guest, calls, launch, callChild } = parent();
    const [kept, dropped] = [launch(), launch()];
    for (const child of [kept, dropped]) {
      await callChild(child, 'wait');
      await callChild(child, 'receive');
    }
    assert.equal(guest.inferlet.childHandles.size, 2);
    guest.call('children', '[resource-drop]child', dropped);
    assert.equal(guest.inferlet.childHandles.size, 1);
    assert.equal(calls.filter((what) => what === 'unfollow').length, 1);
    await guest.end();
    assert.equal(calls.filter((what) => what === 'unfollow').length, 2);
    assert.equal(guest.inferlet.childHandles.size, 0);
  });

  it('leaves nothing unread when a message arrives after the parent has dropped the handle', async () => {
    const { promise, resolve } = Promise.withResolvers<{ readonly tag: 'text'; readonly val: string }>();
    const { guest, launch, callChild } = parent({ messages: () => ({ next: () => promise, close: () => undefined }) });
    const child = launch();
    await callChild(child, 'started');
    const received = callChild<{ readonly tag: string }>(child, 'receive');
    TestInferlet.releaseFuture(received);
    assert.equal((await received).tag, 'err');
    guest.call('children', '[resource-drop]child', child);
    resolve({ tag: 'text', val: 'late' });
    await setImmediate();
    assert.equal(guest.inferlet.unread.bytes, 0);
    await guest.end();
  });

  it('answers waits until the unread answers have 32 MiB', async () => {
    const { launch, callChild } = parent();
    const child = launch();
    const endings = Array.from({ length: MAX_UNREAD_ANSWERS + 1 }, () =>
      callChild<{ readonly tag: string }>(child, 'wait'),
    );
    const tags = (await Promise.all(endings)).map(({ tag }) => tag);
    assert.deepEqual(tags, [...Array(MAX_UNREAD_ANSWERS).fill('ok'), 'err']);
  });

  it('has its ending read once for all simultaneous waits, and refuses a wait without room for its result', async () => {
    const { calls, launch, callChild } = parent();
    const reads = () => calls.filter((what) => what === 'ending').length;
    const first = launch();
    const others = Array.from({ length: MAX_UNREAD_ANSWERS - 1 }, launch);
    await Promise.all(Array.from({ length: 1024 }, () => callChild(first, 'wait')));
    assert.equal(reads(), 1);
    for (const child of others) await callChild(child, 'wait');
    assert.equal(reads(), MAX_UNREAD_ANSWERS);
    const refused = await callChild<{ readonly tag: string; readonly val: { readonly val: string } }>(launch(), 'wait');
    assert.equal(refused.tag, 'err');
    assert.match(refused.val.val, /bytes of results came in and were not read/);
  });
});
