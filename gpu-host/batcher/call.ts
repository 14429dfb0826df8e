import type { BatchQueue } from './queue.ts';

/**
 * How a call meets the device.
 * - `instant`: needs no device (allocate, free, embed); may run while the device computes.
 * - `barrier`: instant, once every earlier call of its queue has completed (synchronize).
 * - `idle`: needs no step, but the device must not be computing (slot copies).
 * - `project`: a state to a distribution.
 * - `forward`: inputs through the transformer.
 */
export type CallKind = 'instant' | 'barrier' | 'idle' | 'project' | 'forward';

/** `queued` behind others; `ready` to go; `running` on the device; `paused` until told to go on; `done`. */
export type CallState = 'queued' | 'ready' | 'running' | 'paused' | 'done';

/** Tells the batcher which resources a call touches. Keys are the caller's; equal keys mean the same page or embed. */
export type KeyVisitor = (key: number, writes: boolean) => void;

/** What the batcher knows of a call. The handlers extend it with what the call does. */
export abstract class BatchCall {
  readonly kind: CallKind;
  readonly queue: BatchQueue;
  /** Order of arrival over all queues. */
  arrival = 0;
  /** When it came, or for a run when its last token was done; milliseconds of the batcher's clock. */
  arrivedMs = 0;
  state: CallState = 'queued';
  /** Earlier calls, not done, that touch the same resources, one of the two writing. */
  blockers = 0;
  dependents: BatchCall[] | undefined;
  /** Whether its keys are in the scoreboard. */
  registered = false;

  constructor(kind: CallKind, queue: BatchQueue) {
    this.kind = kind;
    this.queue = queue;
  }

  /** Inputs that are still to be computed; what a batch's token limit counts. */
  abstract get tokens(): number;

  /** Whether it may be cut at any input; asked only when it does not fit. */
  abstract chunkable(): boolean;

  /** Whether it goes on after its `tokens` are done and keeps its place in its queue (a run). */
  abstract get continues(): boolean;

  abstract visitKeys(visit: KeyVisitor): void;
}
