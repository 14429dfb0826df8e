import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { err, ok } from '#gpu-host/protocol/errors.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import type { ChildLauncher, RunningChild } from './children.ts';

/** Launches children that end at once, and records the calls on them. */
function launcher(over: Partial<RunningChild>) {
  const asked: string[] = [];
  const child: RunningChild = {
    id: 'child',
    ended: Promise.resolve(),
    ending: async (refusal) => {
      asked.push('ending');
      const refused = refusal(1 << 20);
      return refused ? err(refused) : ok({ tag: 'success', val: 'x'.repeat(1 << 20) });
    },
    send: async () => ok(undefined),
    closeInbox: async () => void asked.push('close'),
    messages: () => ({ next: async () => ({ tag: 'text', val: 'again' }), close: () => void asked.push('unfollow') }),
    cancel: () => void asked.push('cancel'),
    ...over,
  };
  const children: ChildLauncher = { launch: async () => ok(child), stop: () => undefined };
  return { asked, children };
}

function parent(over: Partial<RunningChild> = {}) {
  const { asked, children } = launcher(over);
  const guest = new TestInferlet(null, { own: { children } });
  const launch = () => guest.call<object>('children', '[constructor]child', 'x', '{}');
  const of = <T>(child: object, what: string) => guest.callOnly<Promise<T>>('children', `[method]child.${what}`, child);
  return { guest, asked, launch, of };
}

describe('a child', () => {
  it('passes on only the first close of its inbox', async () => {
    const { guest, asked, launch, of } = parent();
    const child = launch();
    for (let i = 0; i < 1000; i++) void of(child, 'close');
    await of(child, 'started');
    await guest.end();
    assert.equal(asked.filter((what) => what === 'close').length, 1);
  });

  it('counts against the bound until dropped, and its subscription ends with its parent', async () => {
    const { guest, asked, launch, of } = parent();
    const [kept, dropped] = [launch(), launch()];
    for (const child of [kept, dropped]) {
      await of(child, 'wait');
      await of(child, 'receive');
    }
    assert.equal(guest.inferlet.childHandles.size, 2);
    guest.call('children', '[resource-drop]child', dropped);
    assert.equal(guest.inferlet.childHandles.size, 1);
    assert.equal(asked.filter((what) => what === 'unfollow').length, 1);
    await guest.end();
    assert.equal(asked.filter((what) => what === 'unfollow').length, 2);
    assert.equal(guest.inferlet.childHandles.size, 0);
  });

  it('leaves nothing unread when a message comes after its handle was dropped', async () => {
    const { promise, resolve } = Promise.withResolvers<{ readonly tag: 'text'; readonly val: string }>();
    const { guest, launch, of } = parent({ messages: () => ({ next: () => promise, close: () => undefined }) });
    const child = launch();
    await of(child, 'started');
    const received = of<{ readonly tag: string }>(child, 'receive');
    TestInferlet.releaseFuture(received);
    assert.equal((await received).tag, 'err');
    guest.call('children', '[resource-drop]child', child);
    resolve({ tag: 'text', val: 'late' });
    await setImmediate();
    assert.equal(guest.inferlet.unread.bytes, 0);
    await guest.end();
  });

  it('holds at most 32 MiB of unread answers', async () => {
    const { launch, of } = parent();
    const child = launch();
    const endings = Array.from({ length: 33 }, () => of<{ readonly tag: string }>(child, 'wait'));
    const tags = (await Promise.all(endings)).map(({ tag }) => tag);
    assert.deepEqual(tags, [...Array(32).fill('ok'), 'err']);
  });

  it('has its ending read once for all simultaneous waits, and not at all without room for its result', async () => {
    const { asked, launch, of } = parent();
    const reads = () => asked.filter((what) => what === 'ending').length;
    const first = launch();
    const others = Array.from({ length: 31 }, launch);
    await Promise.all(Array.from({ length: 1024 }, () => of(first, 'wait')));
    assert.equal(reads(), 1);
    for (const child of others) await of(child, 'wait');
    assert.equal(reads(), 32);
    const refused = await of<{ readonly tag: string; readonly val: { readonly val: string } }>(launch(), 'wait');
    assert.equal(refused.tag, 'err');
    assert.match(refused.val.val, /bytes of results came in and were not read/);
  });
});
