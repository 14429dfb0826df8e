import type { CallLinks } from './links.ts';
import type { BatchQueue } from './queue.ts';

/**
 * How a call meets the device.
 * Whatever needs no step is begun between two batches only: memory must not change under the device.
 * - `instant`: needs no step (allocate, free, embed); may still be at work, such as on a disk, while later batches compute.
 * - `barrier`: instant, once every earlier call of its queue has completed (synchronize).
 * - `idle`: needs no step, and is finished before the next batch leaves (slot copies).
 * - `project`: a state to a distribution.
 * - `encode`: pictures to embeds.
 * - `forward`: inputs through the transformer.
 */
export type CallKind = 'instant' | 'barrier' | 'idle' | 'project' | 'encode' | 'forward';

/** `queued` behind others; `ready` to go; `running` on the device; `paused` until told to go on; `done`. */
export type CallState = 'queued' | 'ready' | 'running' | 'paused' | 'done';

/**
 * What a call does with a page or an embed: looks at it, puts keys and values into its empty slots (pages only), or changes it in any
 * other way. A call that does several of these with one key may name it several times; `write` and `fill` of one key exclude each other.
 */
export type Access = 'read' | 'write' | 'fill';

/** Tells the batcher which resources a call touches. Keys are the caller's; equal keys mean the same page or embed. */
export type KeyVisitor = (key: number, access: Access) => void;

/** What the batcher knows of a call. The handlers extend it with what the call does. */
export abstract class BatchCall {
  readonly kind: CallKind;
  readonly queue: BatchQueue;
  /** Order of arrival over all queues. */
  arrival = 0;
  /** When it came, or for a run when its last token was done; milliseconds of the batcher's clock. */
  arrivedMs = 0;
  state: CallState = 'queued';
  /** Earlier calls, not done, that this one waits for. */
  blockers = 0;
  /** Later calls that may go only when this one is done. */
  dependents: BatchCall[] | undefined;
  /** What only calls with soft conflicts, or of an inferlet that uses priorities, need. */
  links: CallLinks | undefined;

  constructor(kind: CallKind, queue: BatchQueue) {
    this.kind = kind;
    this.queue = queue;
  }

  /** Inputs that are still to be computed; what a batch's token limit counts. */
  abstract get tokens(): number;

  /**
   * Whether it may be cut at any input; asked only when it does not fit. Every call that this one waits for is done by then: a call that
   * joins the batch of one that it follows goes whole and is not asked.
   */
  abstract chunkable(): boolean;

  /** Whether it goes on after its `tokens` are done and keeps its place in its queue (a run). */
  abstract get continues(): boolean;

  /** Forwards of different variants (the model, or one of its adapters) never share a batch. */
  get variant(): string | undefined {
    return undefined;
  }

  /**
   * Its turn has come: it asks for what it needs beside earlier calls, and keeps what is there. False when something is still to come: it is
   * paused until it is resumed.
   */
  acquire(): boolean {
    return true;
  }

  abstract visitKeys(visit: KeyVisitor): void;
}

/** Nobody has to wait for it: it is done (or dropped), and so is all that it waited for. */
export function isReleased(call: BatchCall): boolean {
  return call.state === 'done' && call.blockers === 0;
}
