import { ChannelFault } from './fault.ts';
import { Fifo } from './fifo.ts';
import { ReceiveCredit, type SharedRoom } from './flow.ts';
import { FLAG_MORE } from './frames.ts';
import { FRAME_COST, MAX_MESSAGE_BYTES } from './limits.ts';

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
