import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { randomFrom } from '#test/harness/random.ts';
import { Channel, type Lane, SharedRoom } from './channel.ts';
import { FLAG_MORE, frame, KIND } from './frames.ts';
import {
  type ChannelFault,
  FRAME_COST,
  MAX_ASSEMBLY_BYTES,
  MAX_CHANNEL_QUEUED_BYTES,
  MAX_MESSAGE_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_URGENT_BYTES,
  WINDOW_BYTES,
} from './limits.ts';
import { SharedThread } from './shared-thread.ts';
import { splitPair } from './testing/split-pair.ts';

const FINGERPRINT = 7;

interface Sent {
  readonly size: number;
  readonly mark: number;
}

const NO_SIGNALS = { signal: () => undefined };

/** A message of `size` bytes, each of which is the low byte of `mark`. */
const payloadOf = ({ size, mark }: Sent): Buffer => Buffer.alloc(size, mark & 255);

/** Random message sizes: mostly small, some of about a frame, some of many frames. */
function sizeOf(random: () => number): number {
  const kind = random();
  if (kind < 0.6) return Math.floor(random() * 200);
  if (kind < 0.9) return Math.floor(random() * 2 * MAX_PAYLOAD_BYTES);
  return Math.floor(random() * 3 * 2 ** 20);
}

/** Sends random messages on random lanes in both directions, and pauses lanes at random; resolves when all messages have arrived. */
async function play(seed: number): Promise<void> {
  const random = randomFrom(seed);
  const streams = splitPair(random);
  const lanes = 1 + Math.floor(random() * 6);
  const messagesPerLane = 1 + Math.floor(random() * 25);
  const faults: ChannelFault[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let remaining = 2 * lanes * messagesPerLane;
  const expected = new Map<Lane, Sent[]>();
  const plan = streams.map(() => Array.from({ length: lanes }, () => [] as Sent[]));
  const thread = new SharedThread();
  const channels = streams.map(
    (stream, side) =>
      new Channel(stream, {
        fingerprint: FINGERPRINT,
        // One side takes turns on a thread; the other takes every frame at once.
        ...(side === 0 && { thread }),
        unknown: () => null,
        lost: (fault) => {
          faults.push(fault);
          if (fault.code !== 'closed') reject(fault);
        },
      }),
  );
  const sides = channels.map((channel, side) =>
    Array.from({ length: lanes }, (_, number) => {
      const lane: Lane = channel.open(number, {
        ...NO_SIGNALS,
        message: (kind, payload) => {
          const next = expected.get(lane)?.shift();
          assert.ok(next, 'every received message was sent');
          assert.equal(kind, KIND.call);
          assert.equal(payload.length, next.size);
          assert.ok(payload.every((byte) => byte === (next.mark & 255)));
          assert.ok(lane.inbound.outstanding <= WINDOW_BYTES);
          assert.ok(channel.room.free >= 0);
          if (--remaining === 0) resolve();
          if (random() < 0.2) {
            lane.inbound.pause();
            setImmediate(() => setImmediate(() => lane.inbound.resume()));
          }
        },
      });
      expected.set(lane, plan[1 - side]![number]!);
      return lane;
    }),
  );
  let mark = 0;
  for (let i = 0; i < messagesPerLane; i++) {
    for (const [side, lanesOfSide] of sides.entries()) {
      for (const lane of lanesOfSide) {
        const sent = { size: sizeOf(random), mark: ++mark };
        plan[side]![lane.number]!.push(sent);
        lane.send(KIND.call, payloadOf(sent));
      }
    }
    if (random() < 0.5) await new Promise(setImmediate);
  }
  await promise;
  for (const channel of channels) assert.equal(channel.room.free, MAX_ASSEMBLY_BYTES, `seed ${seed}`);
  for (const channel of channels) channel.close();
}

/** A channel, and the other end of its stream. */
function rawPeer(events: { message?: (payload: Buffer) => void } = {}) {
  const [mine, theirs] = splitPair(() => 0.99);
  const { promise: lost, resolve } = Promise.withResolvers<ChannelFault>();
  const channel = new Channel(theirs, { fingerprint: FINGERPRINT, unknown: () => null, lost: resolve });
  const lane = channel.open(1, { ...NO_SIGNALS, message: (_, payload) => events.message?.(payload) });
  const hello = Buffer.alloc(4);
  hello.writeUInt32LE(FINGERPRINT);
  mine.on('error', () => undefined);
  mine.resume();
  const send = (...frames: Buffer[]) => mine.write(Buffer.concat(frames));
  return { mine, channel, lane, lost, send, hello: frame(0, KIND.hello, 0, hello) };
}

describe('a channel', () => {
  for (const seed of [1, 2, 3, 4, 5, 6, 7, 8]) {
    it(
      `carries every message of every invocation, in order and within its bounds, on random schedules (seed ${seed})`,
      {
        timeout: 240_000,
      },
      () => play(seed),
    );
  }

  it('continues with other invocations while one reads nothing', { timeout: 240_000 }, async () => {
    const [a, b] = splitPair(() => 0.99);
    const options = { fingerprint: FINGERPRINT, unknown: () => null, lost: () => undefined };
    const [sender, receiver] = [new Channel(a, options), new Channel(b, options)];
    const { promise, resolve } = Promise.withResolvers<void>();
    let gotOnPausedLane = 0;
    const paused = receiver.open(1, { ...NO_SIGNALS, message: () => void gotOnPausedLane++ });
    paused.inbound.pause();
    let got = 0;
    receiver.open(2, { ...NO_SIGNALS, message: () => ++got === 100 && resolve() });
    const [toPaused, toOther] = [1, 2].map((number) =>
      sender.open(number, { ...NO_SIGNALS, message: () => undefined }),
    );
    for (let i = 0; i < 100; i++) {
      toPaused!.send(KIND.call, Buffer.alloc(60_000));
      toOther!.send(KIND.call, Buffer.alloc(60_000));
    }
    await promise;
    assert.equal(gotOnPausedLane, 0);
    assert.ok(paused.inbound.outstanding <= WINDOW_BYTES);
    assert.ok(toPaused!.outbound.queuedBytes >= 100 * 60_000 - WINDOW_BYTES);
    paused.inbound.resume();
    sender.close();
    receiver.close();
  });

  it('serves another channel of its thread while many messages wait', { timeout: 240_000 }, async () => {
    const thread = new SharedThread();
    const options = { fingerprint: FINGERPRINT, unknown: () => null, lost: () => undefined };
    const taken: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const count = 1000;
    const [flood, other] = ['flood', 'other'].map((name) => {
      const [a, b] = splitPair(() => 0.99);
      const receiver = new Channel(b, { ...options, thread });
      receiver.open(1, {
        ...NO_SIGNALS,
        message: () => {
          taken.push(name);
          const until = performance.now() + 0.1;
          while (performance.now() < until);
          if (taken.length === count + 1) resolve();
          // The other channel gets its only message when the flood has just begun.
          if (name === 'flood' && taken.length === 1) other!.lane.send(KIND.call, Buffer.alloc(10));
        },
      });
      const sender = new Channel(a, options);
      return { sender, receiver, lane: sender.open(1, { ...NO_SIGNALS, message: () => undefined }) };
    });
    for (let i = 0; i < count; i++) flood!.lane.send(KIND.call, Buffer.alloc(10));
    await promise;
    assert.ok(taken.indexOf('other') < count / 2, `${taken.indexOf('other')} of ${count} came first`);
    for (const { sender, receiver } of [flood!, other!]) {
      sender.close();
      receiver.close();
    }
  });

  it('sends all frames of one turn in one write', { timeout: 240_000 }, async () => {
    const [a, b] = splitPair(() => 0.99);
    const { promise, resolve } = Promise.withResolvers<void>();
    const options = { fingerprint: FINGERPRINT, unknown: () => null, lost: () => undefined };
    const [sender, receiver] = [new Channel(a, options), new Channel(b, options)];
    let got = 0;
    const lanes = Array.from({ length: 10 }, (_, number) => {
      receiver.open(number, { ...NO_SIGNALS, message: () => ++got === 100 && resolve() });
      return sender.open(number, { ...NO_SIGNALS, message: () => undefined });
    });
    for (let i = 0; i < 10; i++) for (const lane of lanes) lane.send(KIND.call, Buffer.alloc(10));
    await promise;
    assert.equal(a.writes, 1);
    sender.close();
    receiver.close();
  });

  it('joins the parts of a message that is too large for one frame', { timeout: 240_000 }, async () => {
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    const { send, hello, channel } = rawPeer({ message: resolve });
    const [head, tail] = [Buffer.alloc(1000, 1), Buffer.alloc(500, 2)];
    send(hello, frame(1, KIND.call, FLAG_MORE, head, 1500), frame(1, KIND.call, 0, tail));
    assert.deepEqual(await promise, Buffer.concat([head, tail]));
    assert.equal(channel.room.free, MAX_ASSEMBLY_BYTES);
    channel.close();
  });

  const violations: Record<string, { readonly code: string; readonly frames: (hello: Buffer) => Buffer[] }> = {
    'another contract': { code: 'version', frames: () => [frame(0, KIND.hello, 0, Buffer.alloc(4, 9))] },
    'no hello': { code: 'bad-frame', frames: () => [frame(1, KIND.call, 0, Buffer.alloc(4))] },
    'a frame that is too long': {
      code: 'bad-frame',
      frames: (hello) => [hello, frame(1, KIND.call, 0, Buffer.alloc(MAX_PAYLOAD_BYTES + 1))],
    },
    'an unknown flag': { code: 'bad-frame', frames: (hello) => [hello, frame(1, KIND.call, 2, Buffer.alloc(4))] },
    'an invocation that is not open': {
      code: 'unknown-invocation',
      frames: (hello) => [hello, frame(2, KIND.call, 0, Buffer.alloc(4))],
    },
    'credit for bytes that were not sent': {
      code: 'too-much-in-flight',
      frames: (hello) => [hello, frame(1, KIND.credit, 0, Buffer.alloc(4, 1))],
    },
    'the answer to a close that was not sent': {
      code: 'bad-frame',
      frames: (hello) => [hello, frame(1, KIND.closed, 0, Buffer.alloc(0))],
    },
    'a message that is too large': {
      code: 'too-large',
      frames: (hello) => [hello, frame(1, KIND.call, FLAG_MORE, Buffer.alloc(100), MAX_MESSAGE_BYTES + 1)],
    },
    'a part whose kind differs from that of the message': {
      code: 'bad-frame',
      frames: (hello) => [
        hello,
        frame(1, KIND.call, FLAG_MORE, Buffer.alloc(100), 1000),
        frame(1, KIND.release, 0, Buffer.alloc(900)),
      ],
    },
    'more bytes than the announced length of a message': {
      code: 'bad-frame',
      frames: (hello) => [
        hello,
        frame(1, KIND.call, FLAG_MORE, Buffer.alloc(100), 1000),
        frame(1, KIND.call, 0, Buffer.alloc(901)),
      ],
    },
    'the last part of a message before the message is whole': {
      code: 'bad-frame',
      frames: (hello) => [
        hello,
        frame(1, KIND.call, FLAG_MORE, Buffer.alloc(100), 1000),
        frame(1, KIND.call, 0, Buffer.alloc(10)),
      ],
    },
  };
  for (const [what, { code, frames }] of Object.entries(violations)) {
    it(`ends with ${code} when the peer sends ${what}`, { timeout: 240_000 }, async () => {
      const { send, hello, lost, channel } = rawPeer();
      send(...frames(hello));
      assert.equal((await lost).code, code);
      assert.equal(channel.lanes, 0);
    });
  }

  it('ends with internal when this side fails to handle a message', { timeout: 240_000 }, async () => {
    const cause = new TypeError('a bug');
    const fails = () => {
      throw cause;
    };
    const { send, hello, lost } = rawPeer({ message: fails });
    send(hello, frame(1, KIND.call, 0, Buffer.alloc(4)));
    const { code, message, cause: kept } = await lost;
    assert.deepEqual([code, message, kept], ['internal', 'a frame could not be handled: a bug', cause]);
  });

  for (const [size, what] of [
    [MAX_PAYLOAD_BYTES, 'large messages'],
    [0, 'empty messages'],
  ] as const)
    it(`ends when the peer sends more ${what} than its credit`, { timeout: 240_000 }, async () => {
      const { send, hello, lost, lane } = rawPeer();
      lane.inbound.pause();
      const one = frame(1, KIND.call, 0, Buffer.alloc(size));
      send(hello, ...Array.from({ length: Math.ceil(WINDOW_BYTES / (FRAME_COST + size)) + 1 }, () => one));
      assert.equal((await lost).code, 'too-much-in-flight');
    });

  it('ends when the peer reads nothing and the bytes queued for all invocations pass the bound', {
    timeout: 240_000,
  }, async () => {
    const { send, hello, lost, channel } = rawPeer();
    send(hello);
    // All messages share one buffer: the channel counts waiting bytes and does not copy them.
    const payload = Buffer.alloc(MAX_MESSAGE_BYTES);
    for (let number = 2; channel.fault === null; number++) {
      channel.open(number, { message: () => undefined, signal: () => undefined }).send(KIND.answer, payload);
      assert.ok(number * payload.length < 2 * MAX_CHANNEL_QUEUED_BYTES);
    }
    assert.equal((await lost).code, 'too-much-in-flight');
  });

  it('delivers no message that waits for assembly space once the channel has failed', {
    timeout: 240_000,
  }, async () => {
    const { send, hello, lost, channel } = rawPeer();
    const taken: number[] = [];
    // Two partial messages of the largest size fill the assembly space, so the message of lane 4 waits.
    const begin = [2, 3].map((number) => {
      channel.open(number, { ...NO_SIGNALS, message: () => taken.push(number) });
      return frame(number, KIND.call, FLAG_MORE, Buffer.alloc(100), MAX_MESSAGE_BYTES);
    });
    channel.open(4, { ...NO_SIGNALS, message: () => taken.push(4) });
    const waits = [frame(4, KIND.call, FLAG_MORE, Buffer.alloc(10), 20), frame(4, KIND.call, 0, Buffer.alloc(10))];
    send(hello, ...begin, ...waits, frame(9, KIND.call, 0, Buffer.alloc(4)));
    assert.equal((await lost).code, 'unknown-invocation');
    assert.deepEqual(taken, []);
  });

  it('delivers no message when its credit frame exceeds the bound on waiting signals', {
    timeout: 240_000,
  }, async () => {
    let taken = 0;
    const { send, hello, lost, channel } = rawPeer({ message: () => taken++ });
    // The message of lane 2 uses up the bound on waiting signals, so that the credit frame for the message of lane 1 exceeds the bound.
    channel.open(2, { ...NO_SIGNALS, message: () => channel.urgent(Buffer.alloc(MAX_URGENT_BYTES)) });
    const part = Buffer.alloc(MAX_PAYLOAD_BYTES);
    // The first frame begins with the length of the message, in four bytes.
    const first = frame(1, KIND.call, FLAG_MORE, part.subarray(4), 4 * part.length - 4);
    const middle = frame(1, KIND.call, FLAG_MORE, part);
    // The last part completes half a window, so that the channel gives credit.
    assert.ok(4 * (FRAME_COST + part.length) > WINDOW_BYTES / 2);
    send(hello, first, middle, middle, frame(2, KIND.call, 0, Buffer.alloc(4)), frame(1, KIND.call, 0, part));
    assert.equal((await lost).code, 'too-much-in-flight');
    assert.equal(taken, 0);
  });

  it('ends when its stream ends', { timeout: 240_000 }, async () => {
    const { mine, lost } = rawPeer();
    mine.destroy();
    assert.equal((await lost).code, 'lost');
  });
});

describe('the shared room for large messages', () => {
  it('is assigned in order of arrival and never exceeded', () => {
    for (let seed = 1; seed <= 50; seed++) {
      const random = randomFrom(seed);
      const room = new SharedRoom(100);
      const reservedBytes: number[] = [];
      const started: number[] = [];
      const cancelled = new Set<number>();
      const cancels = Array.from({ length: 40 }, (_, i) => {
        const bytes = 1 + Math.floor(random() * 100);
        const cancel = room.reserve(bytes, () => {
          started.push(i);
          reservedBytes.push(bytes);
          assert.ok(reservedBytes.reduce((sum, part) => sum + part, 0) <= 100);
        });
        if (random() < 0.5 && reservedBytes.length > 0) room.release(reservedBytes.shift()!);
        return cancel;
      });
      for (const [i, cancel] of cancels.entries()) {
        if (random() < 0.2 && !started.includes(i)) {
          cancel();
          cancelled.add(i);
        }
      }
      while (reservedBytes.length > 0) room.release(reservedBytes.shift()!);
      assert.equal(room.free, 100);
      assert.deepEqual(
        started,
        Array.from({ length: 40 }, (_, i) => i).filter((i) => !cancelled.has(i)),
        `seed ${seed}`,
      );
    }
  });
});
