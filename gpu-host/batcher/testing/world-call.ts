import { type BatchQueue, isDeviceCall } from '../call.ts';
import { type Conflict, SimCall, type SimShape } from './sim-call.ts';

/** A call with its progress, and with its conflicts, which are computed pair by pair when the call arrives. */
export class WorldCall extends SimCall {
  /** Earlier unfinished calls that conflict with this one. */
  readonly conflicts: { readonly earlier: WorldCall; readonly conflict: Conflict }[] = [];
  /** Earlier unfinished calls of the same queue. */
  readonly ahead: WorldCall[] = [];
  /** True once the call has been part of a batch, or was executed without one. */
  started = false;
  /** True once the last input has started: calls behind this one in its queue may go. */
  hasLeft = false;
  finished = false;
  /** True when the queue was closed before the call left. */
  dropped = false;
  /** True for a run that waits for its consumer. */
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

  /** True when no later call has to wait for this one: it is done, or it was dropped and all calls that it waited for are released. */
  get released(): boolean {
    this.#released ||= this.finished || (this.dropped && this.conflicts.every(({ earlier }) => earlier.released));
    return this.#released;
  }

  /** True when this call can go to the device, so the device must not stay idle. */
  get ready(): boolean {
    if (!isDeviceCall(this) || this.finished || this.dropped || this.held || this.late || this.hasLeft) return false;
    if (this.started) return true;
    return (
      this.ahead.every((other) => other.hasLeft || other.dropped) &&
      this.conflicts.every(({ earlier }) => earlier.released)
    );
  }
}
