import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, it } from 'node:test';
import { readLifecycleOpening, readLifecycleTrap } from '#wit/generated/channel.ts';
import { MAX_MESSAGE_BYTES as MAX_EVENT_BYTES } from '../host/session/session-state.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';
import { withRelease } from '../lowering/future-release.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { MessageReader, type MessageWriter } from './codec.ts';
import { KIND } from './frames.ts';
import { type ChannelFault, MAX_MESSAGE_BYTES, MAX_NUMBERS } from './limits.ts';
import type { RemoteGuestOptions } from './remote-guest.ts';
import { RuntimeEnd } from './runtime-end.ts';
import { SharedThread } from './shared-thread.ts';
import { RawSandbox } from './testing/raw-sandbox.ts';
import { openInvocation } from './testing/run-remote.ts';

/** Connects a runtime to a hostile sandbox, and opens `invocations` invocations in it. */
async function attacked(invocations = 1, overrides: HostTable = {}, options: Partial<RemoteGuestOptions> = {}) {
  const [mine, theirs] = duplexPair();
  const { promise: lost, resolve } = Promise.withResolvers<ChannelFault>();
  const { host, lines } = recordingHost();
  const merged = Object.fromEntries(
    Object.entries(host).map(([name, table]) => [name, { ...table, ...overrides[name] }]),
  );
  const runtime = new RuntimeEnd(mine, {
    host: merged,
    thread: new SharedThread(),
    control: () => undefined,
    lost: resolve,
  });
  const sandbox = new RawSandbox(theirs);
  const guests = Array.from({ length: invocations }, (_, i) => openInvocation(runtime, { id: `inv-${i}` }, options));
  await sandbox.opened(invocations);
  return { runtime, sandbox, lost, lines, guests };
}

const text = (value: string) => (w: MessageWriter) => w.string(value);
const handle = (number: number) => (w: MessageWriter) => w.u32(number);

const SUBSCRIBE = 'messaging [constructor]subscription';
const NEXT = 'messaging [method]subscription.next';

describe("the runtime's end of a channel to a hostile sandbox", { timeout: 240_000 }, () => {
  const attacks: Record<string, { readonly code: string; readonly attack: (sandbox: RawSandbox) => void }> = {
    'calls a function that does not exist': {
      code: 'unknown-function',
      attack: (sandbox) => sandbox.call(0, 60_000, 1),
    },
    'calls a function that is not answered by the runtime': {
      code: 'unknown-function',
      attack: (sandbox) => sandbox.call(0, 'runtime now', 1),
    },
    'sends an event that is larger than any event may be': {
      code: 'too-much-in-flight',
      attack: (sandbox) =>
        sandbox.call(0, 'session send', 0, (w) => {
          w.case(0);
          w.string('x'.repeat(MAX_EVENT_BYTES + 1));
        }),
    },
    'names a resource that it does not hold': {
      code: 'bad-number',
      attack: (sandbox) => sandbox.call(0, NEXT, 1, handle(5)),
    },
    'names a resource of another kind': {
      code: 'bad-number',
      attack: (sandbox) => {
        sandbox.call(0, SUBSCRIBE, 5, text('news'));
        sandbox.call(0, 'children [method]child.started', 1, handle(5));
      },
    },
    'names a resource of another invocation': {
      code: 'bad-number',
      attack: (sandbox) => {
        sandbox.call(1, SUBSCRIBE, 5, text('news'));
        sandbox.call(0, NEXT, 1, handle(5));
      },
    },
    'names a resource that it has dropped': {
      code: 'bad-number',
      attack: (sandbox) => {
        sandbox.call(0, SUBSCRIBE, 5, text('news'));
        sandbox.call(0, 'messaging [resource-drop]subscription', 0, handle(5));
        sandbox.call(0, NEXT, 1, handle(5));
      },
    },
    'makes a resource under a number that is taken': {
      code: 'bad-number',
      attack: (sandbox) => {
        sandbox.call(0, SUBSCRIBE, 5, text('news'));
        sandbox.call(0, SUBSCRIBE, 5, text('news'));
      },
    },
    'uses the number of a call twice': {
      code: 'bad-number',
      attack: (sandbox) => {
        sandbox.call(0, 'session flush', 3);
        sandbox.call(0, 'session flush', 3);
      },
    },
    'drops a future that it never had': { code: 'bad-number', attack: (sandbox) => sandbox.release(0, 9) },
    'sends a text that is not UTF-8': {
      code: 'bad-value',
      attack: (sandbox) =>
        sandbox.call(0, 'store get', 1, (w) => {
          w.count(1);
          w.u8(0xff);
        }),
    },
    'sends a list that is longer than its message': {
      code: 'bad-value',
      attack: (sandbox) =>
        sandbox.call(0, 'store set', 1, (w) => {
          w.string('key');
          w.count(0xffff_ffff);
        }),
    },
    'sends bytes behind the arguments': {
      code: 'bad-value',
      attack: (sandbox) =>
        sandbox.call(0, 'store get', 1, (w) => {
          w.string('key');
          w.u8(0);
        }),
    },
    'sends a message that only the runtime sends': {
      code: 'bad-frame',
      attack: (sandbox) => sandbox.lanes[0]!.send(KIND.answer, Buffer.alloc(5)),
    },
    'sends a signal that only the runtime sends': {
      code: 'bad-frame',
      attack: (sandbox) => sandbox.lanes[0]!.signal(KIND.stop, Buffer.alloc(0)),
    },
    'holds more resources than it may': {
      code: 'too-much-in-flight',
      attack: (sandbox) => {
        for (let i = 0; i <= MAX_NUMBERS; i++) sandbox.call(0, SUBSCRIBE, i, text('t'));
      },
    },
  };
  for (const [what, { code, attack }] of Object.entries(attacks)) {
    it(`ends the channel with ${code} when the sandbox ${what}`, async () => {
      const { sandbox, lost, guests, runtime } = await attacked(2);
      attack(sandbox);
      const fault = await lost;
      assert.equal(fault.code, code, fault.message);
      for (const { ended, guest } of guests) {
        const outcome = await ended;
        assert.ok(outcome.tag === 'sandbox-lost' && outcome.fault === fault);
        assert.equal(guest.held, 0);
      }
      assert.equal(runtime.guests, 0);
      assert.throws(() => openInvocation(runtime, {}), { code });
    });
  }

  it('opens an invocation after an opening that was too large', async () => {
    const { sandbox, runtime } = await attacked(1);
    assert.throws(() => openInvocation(runtime, { input: 'x'.repeat(MAX_MESSAGE_BYTES) }), { code: 'too-large' });
    openInvocation(runtime, { id: 'next' });
    await sandbox.opened(2);
    assert.equal(readLifecycleOpening(new MessageReader(sandbox.openings[1]!)).id, 'next');
    runtime.close();
  });

  it('ignores calls of a closed invocation, and forgets it when the sandbox confirms the close', async () => {
    const { sandbox, lines, guests, runtime } = await attacked(1);
    sandbox.call(0, 'environment list-variables', 1);
    sandbox.call(0, 'environment list-variables', 2);
    guests[0]!.guest.close();
    while (runtime.lanes > 0) await new Promise(setImmediate);
    assert.deepEqual(lines, []);
    runtime.close();
  });

  it('reports each released future to the host once, as dropped before its answer and as read after it', async () => {
    const reports: string[] = [];
    const settle: ((value: unknown) => void)[] = [];
    let calls = 0;
    const get = (() => {
      const name = `future ${++calls}`;
      return withRelease(new Promise((resolve) => settle.push(resolve)), (isRead) =>
        reports.push(`${name}: ${isRead ? 'read' : 'dropped'}`),
      );
    }) as HostFunction;
    const { sandbox, guests, runtime } = await attacked(1, { store: { get } });
    for (const number of [1, 2]) sandbox.call(0, 'store get', number, text('key'));
    // The sandbox claims that its guest has read future 1, which has no answer yet: the host is told that it was dropped.
    sandbox.release(0, 1, true);
    while (reports.length < 1) await new Promise(setImmediate);
    settle[1]!({ tag: 'ok', val: undefined });
    await new Promise(setImmediate);
    assert.deepEqual(reports, ['future 1: dropped']);
    sandbox.release(0, 2, true);
    while (reports.length < 2) await new Promise(setImmediate);
    // The runtime ignores repeated releases: an honest sandbox also releases a future whose answer is on its way.
    sandbox.release(0, 1);
    sandbox.release(0, 2);
    settle[0]!({ tag: 'ok', val: undefined });
    sandbox.call(0, 'store exists', 3, text('key'));
    while (guests[0]!.guest.held > 0) await new Promise(setImmediate);
    assert.deepEqual(reports, ['future 1: dropped', 'future 2: read']);
    runtime.close();
  });

  it('accepts no calls while too many host calls are in flight, and continues when one settles', async () => {
    const settle: ((value: unknown) => void)[] = [];
    const get = (() => new Promise((resolve) => settle.push(resolve))) as HostFunction;
    const { sandbox, runtime } = await attacked(1, { store: { get } });
    for (let i = 1; i <= MAX_NUMBERS + 100; i++) {
      sandbox.call(0, 'store get', i, text('k'));
      sandbox.release(0, i);
    }
    while (settle.length < MAX_NUMBERS) await new Promise(setImmediate);
    // These turns would be enough for more calls.
    for (let i = 0; i < 10; i++) await new Promise(setImmediate);
    assert.equal(settle.length, MAX_NUMBERS);
    settle[0]!({ tag: 'ok', val: undefined });
    while (settle.length < MAX_NUMBERS + 1) await new Promise(setImmediate);
    runtime.close();
  });

  it('charges the guest for short calls, too', async () => {
    let chargedMs = 0;
    const { promise, resolve } = Promise.withResolvers<void>();
    const charge = (ms: number) => {
      chargedMs += ms;
      resolve();
    };
    const get = (() => Promise.resolve({ tag: 'ok', val: undefined })) as HostFunction;
    const { sandbox, runtime } = await attacked(1, { store: { get } }, { charge });
    for (let i = 1; i <= 10_000; i++) sandbox.call(0, 'store get', i, text('k'));
    await promise;
    assert.ok(chargedMs > 0);
    runtime.close();
  });

  for (const [what, failing] of Object.entries({
    'a host function throws': (() => {
      throw new GuestTrap('output-limit', 'too much');
    }) as HostFunction,
    'a promise of the host is rejected': (() => Promise.reject(new Error('too much'))) as HostFunction,
    'an answer does not fit its type': (() => Promise.resolve({ tag: 'ok', val: {} })) as HostFunction,
  })) {
    it(`ends only the calling invocation when ${what}`, async () => {
      const { sandbox, guests, runtime } = await attacked(2, { store: { get: failing } });
      sandbox.call(0, 'store get', 1, text('key'));
      const outcome = await guests[0]!.ended;
      assert.ok(outcome.tag === 'trapped');
      while (sandbox.closes.length === 0) await new Promise(setImmediate);
      assert.deepEqual(readLifecycleTrap(new MessageReader(sandbox.closes[0]!)), outcome.val);
      assert.equal(runtime.guests, 1);
      runtime.close();
    });
  }
});

describe('events of a sandbox', { timeout: 240_000 }, () => {
  const writeEvent = (w: MessageWriter) => {
    w.case(0);
    w.string('event');
  };

  it('wait, and hold back all later calls, while the log has no room', async () => {
    let room = 2;
    const order: string[] = [];
    const flushes: ((written: boolean) => void)[] = [];
    const send = (() => {
      if (room === 0) return { tag: 'err', val: { tag: 'limit-exceeded', val: 'full' } };
      room--;
      order.push('event');
      return { tag: 'ok', val: undefined };
    }) as HostFunction;
    const exists = (() => {
      order.push('call');
      return Promise.resolve({ tag: 'ok', val: true });
    }) as HostFunction;
    const flushed = () => new Promise<boolean>((resolve) => flushes.push(resolve));
    const { sandbox, runtime } = await attacked(1, { session: { send }, store: { exists } }, { flushed });
    for (let i = 0; i < 3; i++) sandbox.call(0, 'session send', 0, writeEvent);
    sandbox.call(0, 'store exists', 1, text('key'));
    while (flushes.length < 2) await new Promise(setImmediate);
    // These turns would be enough for the third event and the call.
    for (let i = 0; i < 10; i++) await new Promise(setImmediate);
    assert.deepEqual(order, ['event', 'event']);
    room = 5;
    for (const flush of flushes.splice(0)) flush(true);
    while (order.length < 4) await new Promise(setImmediate);
    assert.deepEqual(order, ['event', 'event', 'event', 'call']);
    runtime.close();
  });
});
