import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { StopReason } from '#scheduler/admission/job.ts';
import type { Inferlet } from '../host/inferlet.ts';
import type { Execution } from '../lowering/execution.ts';
import { GuestTrap } from '../lowering/trap.ts';

/** How long an inferlet that is told to stop may go on, to say goodbye. */
const STOP_GRACE_MS = 250;

/** A reason to stop, and how long an inferlet may go on that is told so. */
export interface Stop extends StopReason {
  /** 250 by default. */
  readonly graceMs?: number;
}

/** Stops an inferlet: it is told, gets a moment, and is killed. */
export class Stopping {
  readonly #execution: Execution;
  readonly #inferlet: Inferlet;
  #reason: StopReason | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(execution: Execution, inferlet: Inferlet) {
    this.#execution = execution;
    this.#inferlet = inferlet;
  }

  get reason(): StopReason | null {
    return this.#reason;
  }

  stop(reason: Stop): void {
    if (this.#reason) return;
    this.#reason = reason;
    const trap = () =>
      this.#execution.kill(new GuestTrap(reason.code === 'runtime-lost' ? 'terminated' : reason.code, reason.message));
    if (reason.code === 'runtime-lost' || reason.graceMs === 0) {
      trap();
      return;
    }
    this.#timer = setTimeout(trap, reason.graceMs ?? STOP_GRACE_MS);
    this.#inferlet.stop(handlerError(reason.code, reason.message));
  }

  dispose(): void {
    if (this.#timer) clearTimeout(this.#timer);
  }
}
