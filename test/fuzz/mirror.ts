import { ProtocolFault } from '#gpu-host/protocol/errors.ts';
import { PageLists } from '#gpu-host/protocol/fields.ts';
import { FrameReader, type WordReader } from '#gpu-host/protocol/frames.ts';
import { type DecodedCall, decodeCalls } from '#gpu-host/protocol/operations.ts';
import { FRAME, type FrameKind } from '#gpu-host/protocol/wire.ts';

/**
 * `unreadable`: the host must end the connection. `not-open`: a call names something that is not open, and the host ends the connection, too. There
 * is one exception: if the host itself ended the inferlet, it refuses the inferlet's calls one by one and reads on.
 */
export type MirrorEnd = 'unreadable' | 'not-open';

/** Number of models and encoders of a host. */
export interface Served {
  readonly models: number;
  readonly encoders: number;
}

/**
 * Decodes the bytes of one peer as the host does, to know how far the host will read. Undecodable frames, frames out of order, and calls on
 * inferlets, queues, models or encoders that do not exist end a connection.
 */
export class Mirror {
  readonly #frames = new FrameReader();
  readonly #served: Served;
  readonly #onCall: (call: DecodedCall) => void;
  /** Open queues of each open inferlet. */
  readonly #inferlets = new Map<number, Set<number>>();
  readonly #pageLists = new PageLists();
  #hasGreeted = false;
  #end: MirrorEnd | undefined;
  /** Id of the last stats request that the mirror read. */
  lastPing = 0;

  constructor(served: Served, onCall: (call: DecodedCall) => void) {
    this.#served = served;
    this.#onCall = onCall;
  }

  /** Reason why the host stops reading at the last pushed bytes; undefined when it reads on. */
  get end(): MirrorEnd | undefined {
    return this.#end;
  }

  push(bytes: Uint8Array): void {
    if (this.#end) return;
    try {
      this.#frames.push(bytes, (kind, reader, end) => this.#frame(kind, reader, end));
    } catch (error) {
      if (!(error instanceof ProtocolFault)) throw error;
      this.#end ??= 'unreadable';
    }
  }

  #frame(kind: FrameKind, reader: WordReader, end: number): void {
    if (kind === FRAME.hello && !this.#hasGreeted) {
      reader.enter(end);
      this.#hasGreeted = true;
    } else if (!this.#hasGreeted) throw new ProtocolFault('unexpected', 'no hello');
    else if (kind === FRAME.calls) decodeCalls(reader, end, this.#pageLists, (call) => this.#call(call));
    else if (kind === FRAME.statsRequest) {
      while (!reader.done) {
        reader.enter(end);
        const ping = reader.u32();
        reader.u32();
        reader.leave(end);
        this.lastPing = ping;
      }
    } else throw new ProtocolFault('unexpected', `kind ${kind}`);
  }

  #call(call: DecodedCall): void {
    this.#onCall(call);
    const queues = this.#inferlets.get(call.inferlet);
    if (call.op === 'open-inferlet') {
      this.#require(!queues);
      this.#inferlets.set(call.inferlet, new Set());
      return;
    }
    this.#require(queues !== undefined);
    switch (call.op) {
      case 'close-inferlet':
        this.#inferlets.delete(call.inferlet);
        break;
      case 'create-queue':
        this.#require(!queues.has(call.queue) && call.model < this.#served.models);
        queues.add(call.queue);
        break;
      case 'set-waiting':
      case 'set-tenant-limit':
      case 'set-span':
      case 'run-consumed':
      case 'run-stop':
      case 'run-piped':
      case 'encode-stop':
      case 'image-pixels':
      case 'image-failed':
        break;
      case 'encode':
        this.#require(call.encoder < this.#served.encoders);
        break;
      case 'close-queue':
        this.#require(queues.delete(call.queue));
        break;
      default:
        this.#require(queues.has(call.queue));
    }
  }

  #require(holds: boolean): asserts holds {
    if (holds) return;
    this.#end = 'not-open';
    throw new ProtocolFault('malformed', 'not open, or open already');
  }
}
