import type { BatchQueue } from '../queue.ts';
import { type Conflict, SimCall, type SimShape } from './sim-call.ts';

/** A call with what the rules say about it, worked out pair by pair when it comes, and what has become of it. */
export class WorldCall extends SimCall {
  /** Earlier calls, not done, that it conflicts with. */
  readonly conflicts: { readonly earlier: WorldCall; readonly conflict: Conflict }[] = [];
  /** Earlier calls of its queue, not done. */
  readonly ahead: WorldCall[] = [];
  /** It has been part of a batch, or was done without. */
  started = false;
  /** So has its last input: what is behind it in its queue may go. */
  gone = false;
  finished = false;
  /** Its queue was closed before it left. */
  dropped = false;
  /** A run that waits for its consumer. */
  held = false;
  #released = false;

  constructor(queue: BatchQueue, shape: SimShape, name: string, earlier: readonly WorldCall[]) {
    super(queue, shape, name);
    for (const other of earlier) {
      if (other.released) continue;
      const conflict = this.conflict(other);
      if (conflict !== 'none') this.conflicts.push({ earlier: other, conflict });
      if (other.queue === queue) this.ahead.push(other);
    }
  }

  /** Whether nobody need wait for it: it is done, or was dropped and all that it waited for is released. */
  get released(): boolean {
    this.#released ||= this.finished || (this.dropped && this.conflicts.every(({ earlier }) => earlier.released));
    return this.#released;
  }

  get onDevice(): boolean {
    return this.kind === 'forward' || this.kind === 'project' || this.kind === 'encode';
  }

  /** Whether it must not be kept from the device: everything before it is out of the way. */
  get ready(): boolean {
    if (!this.onDevice || this.finished || this.dropped || this.held || this.late || this.gone) return false;
    if (this.started) return true;
    return (
      this.ahead.every((other) => other.gone || other.dropped) &&
      this.conflicts.every(({ earlier }) => earlier.released)
    );
  }
}
