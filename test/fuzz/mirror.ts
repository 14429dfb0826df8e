import { type DecodedCall, decodeCalls } from '#gpu-host/protocol/decode-calls.ts';
import { ProtocolFault } from '#gpu-host/protocol/errors.ts';
import { FrameReader } from '#gpu-host/protocol/frames.ts';
import { FRAME, type FrameKind } from '#gpu-host/protocol/wire.ts';
import type { WordReader } from '#gpu-host/protocol/words.ts';

/**
 * Reads along what one peer sends, as the host does, to know how far the host will read: what it cannot decode, what comes out of order, and
 * calls on inferlets and queues that are not open end a connection. (Inferlets that the host has ended are refused more gently; so it may
 * read further than this says, never less far.)
 */
export class Mirror {
  readonly #frames = new FrameReader();
  readonly #models: number;
  readonly #noted: (call: DecodedCall) => void;
  /** Open queues of each open inferlet. */
  readonly #inferlets = new Map<number, Set<number>>();
  #greeted = false;
  #over = false;
  /** The last stats request that was read. */
  lastPing = 0;

  constructor(models: number, noted: (call: DecodedCall) => void) {
    this.#models = models;
    this.#noted = noted;
  }

  /** The host ends the connection at what was pushed last. */
  get over(): boolean {
    return this.#over;
  }

  push(bytes: Uint8Array): void {
    if (this.#over) return;
    try {
      this.#frames.push(bytes, (kind, reader, end) => this.#frame(kind, reader, end));
    } catch (error) {
      if (!(error instanceof ProtocolFault)) throw error;
      this.#over = true;
    }
  }

  #frame(kind: FrameKind, reader: WordReader, end: number): void {
    if (kind === FRAME.hello && !this.#greeted) {
      reader.enter(end);
      this.#greeted = true;
    } else if (!this.#greeted) throw new ProtocolFault('unexpected', 'no hello');
    else if (kind === FRAME.calls) decodeCalls(reader, end, (call) => this.#call(call));
    else if (kind === FRAME.statsRequest) {
      reader.enter(end);
      this.lastPing = reader.u32();
    } else throw new ProtocolFault('unexpected', `kind ${kind}`);
  }

  #call(call: DecodedCall): void {
    this.#noted(call);
    const queues = this.#inferlets.get(call.inferlet);
    if (call.op === 'open-inferlet') {
      require(!queues);
      this.#inferlets.set(call.inferlet, new Set());
      return;
    }
    require(queues !== undefined);
    switch (call.op) {
      case 'close-inferlet':
        this.#inferlets.delete(call.inferlet);
        break;
      case 'create-queue':
        require(!queues.has(call.queue) && call.model < this.#models);
        queues.add(call.queue);
        break;
      case 'set-waiting':
        break;
      case 'close-queue':
        require(queues.delete(call.queue));
        break;
      default:
        require(queues.has(call.queue));
    }
  }
}

function require(holds: boolean): asserts holds {
  if (!holds) throw new ProtocolFault('malformed', 'not open, or open already');
}
