import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { StopReason } from '#scheduler/admission/job.ts';
import type { FailureCode } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { patientTimer } from '../patient-timer.ts';
import { type GuestRun, LaunchError, type Launched } from './launch.ts';

/** How long an inferlet that is told to stop may go on, to say goodbye. */
const STOP_GRACE_MS = 250;

/** Failures of invocations that met a quota while they ran. */
export type QuotaCode = Extract<FailureCode, 'quota-tokens' | 'quota-gpu-time' | 'quota-cpu-time'>;

/** A reason to stop, and how long an inferlet may go on that is told so. */
export interface Stop extends Omit<StopReason, 'code'> {
  readonly code: StopReason['code'] | QuotaCode;
  /** 250 by default. */
  readonly graceMs?: number;
  /** What it came from, for whoever reads the error. */
  readonly cause?: string;
  /** When another try may succeed. */
  readonly retryAfterMs?: number;
}

/** Stops an inferlet: it is told, gets a moment, and is killed. */
export class Stopping {
  readonly #run: GuestRun;
  readonly #inferlet: Inferlet;
  #reason: Stop | null = null;
  #endGrace: () => void = () => undefined;

  constructor(run: GuestRun, inferlet: Inferlet) {
    this.#run = run;
    this.#inferlet = inferlet;
  }

  get reason(): Stop | null {
    return this.#reason;
  }

  stop(reason: Stop): void {
    if (this.#reason) return;
    this.#reason = reason;
    // Nobody reads the trap's code: the reason to stop says more.
    const code = reason.code === 'cancelled' || reason.code === 'deadline-exceeded' ? reason.code : 'terminated';
    const trap = () => this.#run.kill(new GuestTrap(code, reason.message));
    if (reason.code === 'runtime-lost' || reason.graceMs === 0) {
      trap();
      return;
    }
    this.#endGrace = patientTimer(reason.graceMs ?? STOP_GRACE_MS, trap);
    const error = handlerError(isQuota(reason.code) ? 'limit-exceeded' : reason.code, reason.message);
    this.#run.stopping(error);
    this.#inferlet.stop(error);
  }

  /** It has ended: nothing is left to kill. */
  dispose(): void {
    this.#endGrace();
  }
}

/** Waits for a launch, or for a reason to stop that makes it useless: its instance is let go of when it comes. */
export async function orStopped(
  launching: Promise<Launched | LaunchError>,
  signal: AbortSignal,
): Promise<Launched | LaunchError> {
  const stopped = Promise.withResolvers<LaunchError>();
  const onAbort = () => {
    const { code, message } = signal.reason as StopReason;
    // Whoever is terminated may be restarted, which is decided when it has begun.
    if (code !== 'terminated') stopped.resolve(new LaunchError(code, message));
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  const first = await Promise.race([stopped.promise, launching]);
  signal.removeEventListener('abort', onAbort);
  void launching.then((launched) => launched === first || launched instanceof LaunchError || launched.run.dispose());
  return first;
}

const isQuota = (code: Stop['code']): code is QuotaCode => code.startsWith('quota-');
