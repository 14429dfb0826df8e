import type { Duplex } from 'node:stream';
import { Fifo } from './fifo.ts';
import { FIRST_MESSAGE, FLAG_MORE, FrameParser, frame, KIND } from './frames.ts';
import {
  BATCH_BYTES,
  ChannelFault,
  FRAME_COST,
  MAX_ASSEMBLY_BYTES,
  MAX_CHANNEL_QUEUED_BYTES,
  MAX_CONTROL_QUEUED_BYTES,
  MAX_MESSAGE_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_QUEUED_BYTES,
  MAX_URGENT_BYTES,
  WINDOW_BYTES,
} from './limits.ts';
import type { ChannelShare, SharedThread } from './shared-thread.ts';

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
  readonly #share: ChannelShare | null;
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

/** A complete message. */
interface Arrived {
  readonly kind: number;
  readonly payload: Buffer;
  /** Credit to give back after the message is taken. */
  readonly cost: number;
  /** Shared room to give back after the message is taken. */
  readonly room: number;
}

/** A message with more frames to come. */
interface PartialMessage {
  readonly kind: number;
  readonly total: number;
  receivedBytes: number;
  /** Null until there is room for the whole message. */
  buffer: Buffer | null;
  /** Frames that wait for room, at most a window of them. */
  readonly waitingFrames: Buffer[];
  giveUpRoom: () => void;
}

export interface InboundOptions {
  readonly room: SharedRoom;
  /** Gives the peer credit for this many more bytes. */
  readonly give: (bytes: number) => void;
  /** Takes one message and the ownership of its payload. */
  readonly take: (kind: number, payload: Buffer) => void;
  /** Called when messages wait for `handNext`. */
  readonly waits: () => void;
  /** Called with the error when `take` throws for a complete message that waited for shared room. */
  readonly failed: (error: unknown) => void;
}

/** Incoming messages of one invocation: assembled from frames, in order, and held back during a pause. */
export class Inbound {
  readonly #options: InboundOptions;
  readonly #credit = new ReceiveCredit();
  readonly #inbox = new Fifo<Arrived>();
  #parts: PartialMessage | null = null;
  #pauses = 0;
  #ended = false;

  constructor(options: InboundOptions) {
    this.#options = options;
  }

  /** Bytes that the peer has sent and whose credit it has not got back. */
  get outstanding(): number {
    return this.#credit.outstanding;
  }

  /** @param payload a view that is valid until this call returns */
  frame(kind: number, flags: number, payload: Buffer): void {
    const cost = FRAME_COST + payload.length;
    this.#credit.accept(cost);
    if (this.#ended) return;
    if (this.#parts) this.#append(this.#parts, kind, flags, payload);
    else if (flags & FLAG_MORE) this.#begin(kind, payload);
    else this.#handOrQueue({ kind, payload: Buffer.from(payload), cost, room: 0 });
  }

  /** Hands on no message until `resume` was called as often as `pause`. */
  pause(): void {
    this.#pauses++;
  }

  resume(): void {
    this.#pauses--;
    if (this.#pauses === 0 && this.#inbox.first) this.#options.waits();
  }

  /** Hands on the first waiting message, unless the invocation is paused. */
  handNext(): void {
    if (this.#pauses > 0) return;
    const next = this.#inbox.shift();
    if (!next) return;
    if (this.#inbox.first) this.#options.waits();
    this.#hand(next);
  }

  /** Discards waiting and future messages, and gives no more credit. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (let next = this.#inbox.shift(); next; next = this.#inbox.shift()) this.#options.room.release(next.room);
    const parts = this.#parts;
    this.#parts = null;
    parts?.giveUpRoom();
  }

  #begin(kind: number, payload: Buffer): void {
    const total = payload.length >= 4 ? payload.readUInt32LE(0) : 0;
    if (total <= payload.length - 4) throw new ChannelFault('bad-frame', 'the peer cut a message that is whole');
    if (total > MAX_MESSAGE_BYTES) {
      throw new ChannelFault(
        'too-large',
        `the peer sent a message of ${total} bytes; ${MAX_MESSAGE_BYTES} is the limit`,
      );
    }
    const parts: PartialMessage = {
      kind,
      total,
      receivedBytes: 0,
      buffer: null,
      waitingFrames: [],
      giveUpRoom: () => undefined,
    };
    this.#parts = parts;
    this.#hold(parts, payload.subarray(4), FRAME_COST + payload.length);
    const leave = this.#options.room.reserve(total, () => this.#assemble(parts));
    parts.giveUpRoom = () => (parts.buffer ? this.#options.room.release(total) : leave());
  }

  #append(parts: PartialMessage, kind: number, flags: number, payload: Buffer): void {
    const hasMore = (flags & FLAG_MORE) !== 0;
    const missingBytes = parts.total - parts.receivedBytes - payload.length;
    if (kind !== parts.kind || missingBytes < 0) {
      throw new ChannelFault('bad-frame', 'the peer sent another message before the last was whole');
    }
    if (hasMore !== missingBytes > 0) {
      throw new ChannelFault('bad-frame', `the parts of a message are not its ${parts.total} bytes`);
    }
    this.#hold(parts, payload, FRAME_COST + payload.length);
    this.#complete(parts);
  }

  #hold(parts: PartialMessage, payload: Buffer, cost: number): void {
    if (parts.buffer) {
      parts.buffer.set(payload, parts.receivedBytes);
      this.#returnCredit(cost);
    } else parts.waitingFrames.push(Buffer.from(payload));
    parts.receivedBytes += payload.length;
  }

  #assemble(parts: PartialMessage): void {
    parts.buffer = Buffer.allocUnsafeSlow(parts.total);
    let at = 0;
    // The first frame began with the length of the message, in four bytes that are not in `waitingFrames`.
    let cost = 4;
    for (const part of parts.waitingFrames.splice(0)) {
      parts.buffer.set(part, at);
      at += part.length;
      cost += FRAME_COST + part.length;
    }
    this.#returnCredit(cost);
    try {
      this.#complete(parts);
    } catch (error) {
      this.#options.failed(error);
    }
  }

  #complete(parts: PartialMessage): void {
    if (!parts.buffer || parts.receivedBytes < parts.total) return;
    this.#parts = null;
    this.#handOrQueue({ kind: parts.kind, payload: parts.buffer, cost: 0, room: parts.total });
  }

  #handOrQueue(message: Arrived): void {
    if (this.#pauses > 0 || this.#inbox.first) this.#inbox.push(message);
    else this.#hand(message);
  }

  #hand({ kind, payload, cost, room }: Arrived): void {
    try {
      this.#options.take(kind, payload);
    } finally {
      this.#options.room.release(room);
      this.#returnCredit(cost);
    }
  }

  #returnCredit(bytes: number): void {
    const credit = bytes > 0 && !this.#ended ? this.#credit.took(bytes) : 0;
    if (credit > 0) this.#options.give(credit);
  }
}

/** A message that has several frames begins with its length, in this many bytes. */
const LENGTH_BYTES = 4;

interface Waiting {
  readonly kind: number;
  readonly payload: Buffer;
  /** Bytes of the payload that were already sent. */
  sent: number;
}

/** Messages of one invocation that wait to be sent, in order. Cuts them into frames as the credit allows. */
export class Outbound {
  readonly credit = new SendCredit();
  readonly #invocation: number;
  readonly #onQueuedChange: (bytes: number) => void;
  readonly #queue = new Fifo<Waiting>();
  #queuedBytes = 0;
  #ended = false;
  #begun = false;
  /** Settles when the next message has been sent whole; null while no caller waits for this. */
  #nextSent: PromiseWithResolvers<boolean> | null = null;

  /** @param onQueuedChange called with the change of the number of waiting bytes */
  constructor(invocation: number, onQueuedChange: (bytes: number) => void) {
    this.#invocation = invocation;
    this.#onQueuedChange = onQueuedChange;
  }

  /** Bytes of the waiting messages, with `FRAME_COST` for each. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** True once `next` has returned a frame. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Resolves with true when the next message has been sent whole; with false when the queue has ended. */
  sent(): Promise<boolean> {
    if (this.#ended) return Promise.resolve(false);
    this.#nextSent ??= Promise.withResolvers();
    return this.#nextSent.promise;
  }

  add(kind: number, payload: Buffer): void {
    if (this.#ended) return;
    this.#queue.push({ kind, payload, sent: 0 });
    this.#count(payload.length + FRAME_COST);
  }

  /** Returns the next frame; null when no message waits, or the credit is too small. */
  next(): Buffer | null {
    const message = this.#queue.first;
    if (!message) return null;
    const { kind, payload, sent } = message;
    const unsentBytes = payload.length - sent;
    const isFirstOfSeveral = sent === 0 && unsentBytes > MAX_PAYLOAD_BYTES;
    const lengthBytes = isFirstOfSeveral ? LENGTH_BYTES : 0;
    const size = Math.min(unsentBytes, MAX_PAYLOAD_BYTES - lengthBytes);
    if (!this.credit.take(FRAME_COST + lengthBytes + size)) return null;
    this.#begun = true;
    message.sent += size;
    const isComplete = message.sent === payload.length;
    this.#count(isComplete ? -size - FRAME_COST : -size);
    if (isComplete) {
      this.#queue.shift();
      this.#settle(true);
    }
    const part = size === payload.length ? payload : payload.subarray(sent, sent + size);
    return frame(this.#invocation, kind, isComplete ? 0 : FLAG_MORE, part, isFirstOfSeveral ? payload.length : -1);
  }

  /** Forgets the waiting messages and takes no more. */
  end(): void {
    this.#ended = true;
    this.#queue.clear();
    this.#count(-this.#queuedBytes);
    this.#settle(false);
  }

  #settle(sent: boolean): void {
    this.#nextSent?.resolve(sent);
    this.#nextSent = null;
  }

  #count(bytes: number): void {
    this.#queuedBytes += bytes;
    this.#onQueuedChange(bytes);
  }
}

/** Credit for sending to one invocation, in bytes, with `FRAME_COST` for each frame. */
export class SendCredit {
  #remainingBytes = WINDOW_BYTES;

  get left(): number {
    return this.#remainingBytes;
  }

  /** Uses credit; returns false when there is too little. */
  take(bytes: number): boolean {
    if (bytes > this.#remainingBytes) return false;
    this.#remainingBytes -= bytes;
    return true;
  }

  /** Adds credit for bytes that the peer has taken. @throws ChannelFault when this side has not sent the peer that many bytes */
  give(bytes: number): void {
    if (bytes === 0 || this.#remainingBytes + bytes > WINDOW_BYTES) {
      throw new ChannelFault('too-much-in-flight', `the peer took ${bytes} bytes, which it was not sent`);
    }
    this.#remainingBytes += bytes;
  }
}

/** Credit that the peer has for sending to one invocation on this side. */
export class ReceiveCredit {
  #outstanding = 0;
  #takenBytes = 0;

  /** Bytes that arrived and whose credit was not given back. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Counts a frame. @throws ChannelFault when the peer had no credit for it */
  accept(bytes: number): void {
    this.#outstanding += bytes;
    if (this.#outstanding > WINDOW_BYTES) {
      throw new ChannelFault('too-much-in-flight', `the peer sent more than the ${WINDOW_BYTES} bytes that it may`);
    }
  }

  /**
   * Counts bytes that this side has taken, and returns the credit to give back now. Returns 0 until half a window is taken, so that credit needs few
   * frames. The peer can still send meanwhile: the other half of the window is larger than a frame.
   */
  took(bytes: number): number {
    this.#takenBytes += bytes;
    if (this.#takenBytes < WINDOW_BYTES / 2) return 0;
    const returnedBytes = this.#takenBytes;
    this.#takenBytes = 0;
    this.#outstanding -= returnedBytes;
    return returnedBytes;
  }
}

/** Room that large messages of all invocations share while they are assembled. First come, first served. */
export class SharedRoom {
  #freeBytes: number;
  readonly #queue: { readonly bytes: number; readonly begin: () => void }[] = [];

  constructor(bytes: number) {
    this.#freeBytes = bytes;
  }

  get free(): number {
    return this.#freeBytes;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** Calls `begin`, now or later, when there is room. Returns a function that withdraws the request while it waits. */
  reserve(bytes: number, begin: () => void): () => void {
    const entry = { bytes, begin };
    this.#queue.push(entry);
    this.#admit();
    return () => {
      const at = this.#queue.indexOf(entry);
      if (at < 0) return;
      this.#queue.splice(at, 1);
      this.#admit();
    };
  }

  release(bytes: number): void {
    this.#freeBytes += bytes;
    this.#admit();
  }

  #admit(): void {
    for (;;) {
      const [first] = this.#queue;
      if (!first || first.bytes > this.#freeBytes) return;
      this.#queue.shift();
      this.#freeBytes -= first.bytes;
      first.begin();
    }
  }
}
