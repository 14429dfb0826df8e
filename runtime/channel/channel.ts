import type { Duplex } from 'node:stream';
import { ChannelFault } from './fault.ts';
import { SharedRoom } from './flow.ts';
import { FIRST_MESSAGE, FLAG_MORE, FrameParser, frame, KIND } from './frames.ts';
import { Inbound } from './inbound.ts';
import {
  BATCH_BYTES,
  MAX_ASSEMBLY_BYTES,
  MAX_CHANNEL_QUEUED_BYTES,
  MAX_CONTROL_QUEUED_BYTES,
  MAX_QUEUED_BYTES,
  MAX_URGENT_BYTES,
} from './limits.ts';
import { Outbound } from './outbound.ts';
import type { SharedThread, ThreadShare } from './shared-thread.ts';

/** Receives the frames of one lane, which is one invocation's part of the channel. */
export interface LaneEvents {
  /** Takes one whole message and the ownership of its payload. */
  message(kind: number, payload: Buffer): void;
  /** Takes a signal; its payload is valid until the call returns. */
  signal(kind: number, payload: Buffer): void;
}

export interface ChannelOptions {
  /** Fingerprint of the contract; both ends must have the same. */
  readonly fingerprint: number;
  /** Called for a frame whose number has no lane. Returns a new lane when the frame begins an invocation, else null. */
  readonly unknown: (lane: number, kind: number) => Lane | null;
  /** Thread that the channel shares with others, taking turns. Without it, the channel takes every frame at once. */
  readonly thread?: SharedThread;
  /** Called once, when the channel has ended, for any reason. */
  readonly lost: (fault: ChannelFault) => void;
}

const EMPTY = Buffer.alloc(0);
const UNTAKEN = 'the peer does not read what this side sends';

/** One invocation's part of a channel. Lane 0 carries control messages, which belong to no invocation. */
export class Lane {
  readonly number: number;
  readonly inbound: Inbound;
  readonly outbound: Outbound;
  readonly #channel: Channel;
  readonly #events: LaneEvents;
  readonly #earlySignals: Buffer[] = [];
  /** True while the lane only waits for the peer's `closed`. */
  #closing = false;

  constructor(channel: Channel, number: number, room: SharedRoom, events: LaneEvents) {
    this.#channel = channel;
    this.number = number;
    this.#events = events;
    this.outbound = new Outbound(number, (bytes) => channel.queued(bytes));
    this.inbound = new Inbound({
      room,
      give: (bytes) => this.#give(bytes),
      take: (kind, payload) => {
        // A failing channel ends its lanes one by one. The room that one lane frees may complete a message of another, which must not be delivered.
        if (!channel.fault) events.message(kind, payload);
      },
      waits: () => channel.waits(this),
      failed: (error) => channel.fail(ChannelFault.from(error)),
    });
  }

  /** Queues a message. @throws ChannelFault `too-much-in-flight` when too many bytes wait, except for the message `ended` */
  send(kind: number, payload: Buffer): void {
    const maxBytes = this.number === 0 ? MAX_CONTROL_QUEUED_BYTES : MAX_QUEUED_BYTES;
    // `ended` is always queued: the sandbox has no other way to tell the runtime that the guest has ended, and sends only one for each invocation.
    if (kind !== KIND.ended && this.outbound.queuedBytes + payload.length > maxBytes) {
      throw new ChannelFault('too-much-in-flight', `more than ${maxBytes} bytes of one invocation wait to be sent`);
    }
    this.outbound.add(kind, payload);
    this.#channel.ready(this);
  }

  /** Runtime: sends a signal before waiting messages but after the message `open`, because the sandbox does not know the invocation before. */
  signalBehindOpening(kind: number, payload: Buffer): void {
    if (this.outbound.begun) this.signal(kind, payload);
    else this.#earlySignals.push(frame(this.number, kind, 0, payload));
  }

  /** Returns the frames of the signals that waited for the message `open`. */
  takeEarly(): Buffer[] {
    return this.#earlySignals.splice(0);
  }

  /** Sends a signal before waiting messages. */
  signal(kind: number, payload: Buffer): void {
    this.#channel.urgent(frame(this.number, kind, 0, payload));
  }

  /** Runtime: ends the invocation. The lane takes nothing more, and is forgotten when the sandbox has answered the `close`. */
  close(payload: Buffer): void {
    if (this.#closing) return;
    this.#closing = true;
    if (!this.outbound.begun) {
      // The message `open` was not sent and is dropped, so the sandbox never learns of the invocation.
      this.forget();
      return;
    }
    this.signal(KIND.close, payload);
    this.inbound.end();
    this.outbound.end();
  }

  /** Sandbox: answers `close`. */
  closed(): void {
    this.signal(KIND.closed, EMPTY);
    this.forget();
  }

  /** Removes the lane from the channel, which then no longer knows the lane's number. */
  forget(): void {
    this.inbound.end();
    this.outbound.end();
    this.#channel.forget(this);
  }

  frame(kind: number, flags: number, payload: Buffer): void {
    if (kind === KIND.credit) {
      if (payload.length !== 4) throw new ChannelFault('bad-frame', 'a credit has four bytes');
      this.outbound.credit.give(payload.readUInt32LE(0));
      this.#channel.ready(this);
    } else if (kind === KIND.closed) {
      if (!this.#closing) throw new ChannelFault('bad-frame', 'the peer answered a close that was not sent');
      this.forget();
    } else if (kind >= FIRST_MESSAGE) this.inbound.frame(kind, flags, payload);
    else if (!this.#closing) this.#events.signal(kind, payload);
  }

  #give(bytes: number): void {
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32LE(bytes);
    this.signal(KIND.credit, payload);
  }
}

/**
 * Messages of many invocations over one duplex byte stream. All frames of one turn of the event loop leave in one write. Invocations take
 * turns, a frame each; channels that share a thread take turns, too. A peer that breaks a rule ends the channel.
 */
export class Channel {
  readonly #stream: Duplex;
  readonly #options: ChannelOptions;
  readonly #parser = new FrameParser();
  readonly #lanes = new Map<number, Lane>();
  readonly #share: ThreadShare | null;
  /** Lanes whose received messages wait to be handled, in the order of their turns. */
  readonly #waitingLanes = new Set<Lane>();
  #serving = false;
  /** Room for partial messages of all lanes. */
  readonly room = new SharedRoom(MAX_ASSEMBLY_BYTES);
  #urgent: Buffer[] = [];
  #urgentBytes = 0;
  #queuedBytes = 0;
  /** Lanes that may have something to send, in the order of their turns. */
  readonly #readyLanes = new Set<Lane>();
  #scheduled = false;
  /** Time at which the stream became full; null while it has room. */
  #blockedAtMs: number | null = null;
  #greeted = false;
  #fault: ChannelFault | null = null;

  constructor(stream: Duplex, options: ChannelOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#share = options.thread?.share(() => this.#serve()) ?? null;
    stream.on('data', (chunk: Buffer) => this.#receive(chunk));
    stream.on('drain', () => {
      this.#blockedAtMs = null;
      this.#flush();
    });
    stream.on('error', (cause) =>
      this.fail(new ChannelFault('lost', `the stream failed: ${cause.message}`, { cause })),
    );
    stream.on('end', () => this.fail(new ChannelFault('lost', 'the peer ended the stream')));
    stream.on('close', () => this.fail(new ChannelFault('lost', 'the stream was closed')));
    const hello = Buffer.allocUnsafe(4);
    hello.writeUInt32LE(options.fingerprint);
    this.urgent(frame(0, KIND.hello, 0, hello));
  }

  /** Fault that ended the channel, or null. */
  get fault(): ChannelFault | null {
    return this.#fault;
  }

  /** Number of lanes, including the control lane. */
  get lanes(): number {
    return this.#lanes.size;
  }

  /** True while data from the peer waits for this channel's turn on the thread. */
  get behind(): boolean {
    return this.#share?.waiting ?? false;
  }

  /** Time, by `performance.now`, since which the stream to the peer is full because the peer does not read; null while it has room. */
  get untakenSinceMs(): number | null {
    return this.#blockedAtMs;
  }

  /** Counts time that the thread spent for this channel outside the handling of frames, for example on answers. */
  spent(ms: number): void {
    if (!this.#fault) this.#share?.spend(ms);
  }

  open(number: number, events: LaneEvents): Lane {
    const lane = new Lane(this, number, this.room, events);
    this.#lanes.set(number, lane);
    return lane;
  }

  forget(lane: Lane): void {
    this.#lanes.delete(lane.number);
    this.#readyLanes.delete(lane);
    this.#waitingLanes.delete(lane);
  }

  /** Called when messages of this lane wait to be handled. */
  waits(lane: Lane): void {
    this.#waitingLanes.add(lane);
    this.#serve();
  }

  /** Called when this lane may have something to send. */
  ready(lane: Lane): void {
    this.#readyLanes.add(lane);
    this.#schedule();
  }

  /** Adds `bytes`, which is negative after a frame was sent, to the number of bytes that wait to be sent. */
  queued(bytes: number): void {
    this.#queuedBytes += bytes;
    if (this.#queuedBytes > MAX_CHANNEL_QUEUED_BYTES) this.fail(new ChannelFault('too-much-in-flight', UNTAKEN));
  }

  /** Sends a frame before all messages. */
  urgent(bytes: Buffer): void {
    this.#urgent.push(bytes);
    this.#urgentBytes += bytes.length;
    if (this.#urgentBytes > MAX_URGENT_BYTES) {
      this.fail(new ChannelFault('too-much-in-flight', UNTAKEN));
      return;
    }
    this.#schedule();
  }

  /** Ends the channel, once. */
  fail(fault: ChannelFault): void {
    if (this.#fault) return;
    this.#fault = fault;
    this.#stream.destroy();
    this.#urgent = [];
    this.#readyLanes.clear();
    this.#waitingLanes.clear();
    this.#share?.leave();
    for (const lane of [...this.#lanes.values()]) lane.forget();
    this.#options.lost(fault);
  }

  close(reason = 'this side closed the channel'): void {
    this.fail(new ChannelFault('closed', reason));
  }

  #schedule(): void {
    if (this.#scheduled || this.#blockedAtMs !== null || this.#fault) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#fault || this.#blockedAtMs !== null) return;
    const batch = this.#urgent;
    this.#urgent = [];
    this.#urgentBytes = 0;
    let bytes = batch.reduce((sum, part) => sum + part.length, 0);
    for (const lane of this.#readyLanes) {
      if (bytes >= BATCH_BYTES) break;
      this.#readyLanes.delete(lane);
      const nextFrame = lane.outbound.next();
      if (!nextFrame) continue;
      batch.push(nextFrame);
      bytes += nextFrame.length;
      for (const earlyFrame of lane.takeEarly()) {
        batch.push(earlyFrame);
        bytes += earlyFrame.length;
      }
      // The lane goes behind the others; the loop reaches it again.
      this.#readyLanes.add(lane);
    }
    const [only] = batch;
    if (!only) return;
    const hasRoom = this.#stream.write(batch.length === 1 ? only : Buffer.concat(batch, bytes));
    if (!hasRoom) this.#blockedAtMs = performance.now();
    if (this.#readyLanes.size > 0) this.#schedule();
  }

  #receive(chunk: Buffer): void {
    if (this.#fault) return;
    const sinceMs = performance.now();
    this.#parser.add(chunk);
    this.spent(performance.now() - sinceMs);
    this.#serve();
  }

  /** Handles the received data as far as the thread share allows. The rest waits for a later turn, and the stream pauses. */
  #serve(): void {
    if (this.#serving || this.#fault) return;
    this.#serving = true;
    try {
      const isDrained = this.#takeAll();
      if (this.#fault) return;
      if (!isDrained) this.#stream.pause();
      else if (this.#stream.isPaused()) this.#stream.resume();
    } catch (error) {
      this.fail(ChannelFault.from(error));
    } finally {
      this.#serving = false;
    }
  }

  /** Returns false when the channel has to wait for its turn. */
  #takeAll(): boolean {
    const share = this.#share;
    if (share && !share.begin()) {
      share.wait();
      return false;
    }
    for (;;) {
      const hasTaken = this.#takeOne();
      if (this.#fault) return true;
      // Asked even when no frame was complete: a chunk without a complete frame costs time, too.
      if (share && !share.more()) {
        share.wait();
        return false;
      }
      if (!hasTaken) return true;
    }
  }

  /** Handles one message or frame. Returns false when there is none. */
  #takeOne(): boolean {
    for (const lane of this.#waitingLanes) {
      this.#waitingLanes.delete(lane);
      lane.inbound.handNext();
      return true;
    }
    return this.#parser.next(this.#onFrame);
  }

  readonly #onFrame = (number: number, kind: number, flags: number, payload: Buffer): void =>
    this.#frame(number, kind, flags, payload);

  #frame(number: number, kind: number, flags: number, payload: Buffer): void {
    // Ignores frames after a fault in the same chunk.
    if (this.#fault) return;
    if (!this.#greeted) {
      this.#greet(kind, payload);
      return;
    }
    if ((kind < FIRST_MESSAGE && flags !== 0) || flags > FLAG_MORE) {
      throw new ChannelFault('bad-frame', `the peer set flags ${flags} on a frame of kind ${kind}`);
    }
    const lane = this.#lanes.get(number) ?? this.#options.unknown(number, kind);
    if (!lane)
      throw new ChannelFault('unknown-invocation', `the peer sent a frame of invocation ${number}, which is not open`);
    lane.frame(kind, flags, payload);
  }

  #greet(kind: number, payload: Buffer): void {
    if (kind !== KIND.hello || payload.length !== 4) throw new ChannelFault('bad-frame', 'the peer sent no hello');
    if (payload.readUInt32LE(0) !== this.#options.fingerprint) {
      throw new ChannelFault('version', 'the peer was made from another contract; restart both from one installation');
    }
    this.#greeted = true;
  }
}
