import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { StopReason } from '#scheduler/admission/job.ts';
import type { Figures } from '#scheduler/invocations/endings.ts';
import type { EndingQuotaCode } from '#scheduler/quotas/names.ts';
import type { Inferlet } from '../host/session/inferlet.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { patientTimer } from '../patient-timer.ts';
import { type GuestRun, LaunchError, type Launched } from './launch.ts';

/** Time that a stopped inferlet has to send its last messages. */
const STOP_GRACE_MS = 250;

/** A reason to stop an inferlet, and the grace: the time that the inferlet has to end by itself. */
export interface Stop extends Omit<StopReason, 'code'> {
  readonly code: StopReason['code'] | EndingQuotaCode;
  /** 250 by default; 0 kills the inferlet at once. */
  readonly graceMs?: number;
  /** The origin of the stop, which the error event names. */
  readonly cause?: string;
  /** Milliseconds until another try may succeed. */
  readonly retryAfterMs?: number;
  /** The figures that decided, for the log. */
  readonly figures?: Figures;
}

/** Stops an inferlet: tells it to stop, waits for the grace, then kills it. */
export class Stopping {
  readonly #run: GuestRun;
  readonly #inferlet: Inferlet;
  #reason: Stop | null = null;
  #cancelKill: () => void = () => undefined;

  constructor(run: GuestRun, inferlet: Inferlet) {
    this.#run = run;
    this.#inferlet = inferlet;
  }

  get reason(): Stop | null {
    return this.#reason;
  }

  /** Stops the inferlet; calls after the first are ignored. */
  stop(reason: Stop): void {
    if (this.#reason) return;
    this.#reason = reason;
    // Traps have no code for some reasons; `terminated` stands for these. The verdict takes its code from the reason, not from this trap.
    const code = reason.code === 'cancelled' || reason.code === 'deadline-exceeded' ? reason.code : 'terminated';
    const kill = () => this.#run.kill(new GuestTrap(code, reason.message));
    if (reason.code === 'runtime-lost' || reason.graceMs === 0) {
      kill();
      return;
    }
    this.#cancelKill = patientTimer(reason.graceMs ?? STOP_GRACE_MS, kill);
    const error = handlerError(isQuota(reason.code) ? 'limit-exceeded' : reason.code, reason.message);
    this.#run.stopping(error);
    this.#inferlet.stop(error);
  }

  /** Cancels the kill: the inferlet has ended. */
  dispose(): void {
    this.#cancelKill();
  }
}

/**
 * Resolves to the instance or error of a launch, or to the reason to stop when an earlier abort makes the launch useless. An instance that
 * comes after such an abort is disposed of.
 *
 * @param signal aborts with a `StopReason`
 * @param depth generations between the invocation and its root
 */
export async function orStopped(
  launching: Promise<Launched | LaunchError>,
  signal: AbortSignal,
  depth: number,
): Promise<Launched | LaunchError> {
  const stopped = Promise.withResolvers<LaunchError>();
  const onAbort = () => {
    const { code, message } = signal.reason as StopReason;
    // A terminated root still gets its instance, and its run then decides on a restart. A terminated child ends at once: its parent waits for it.
    if (code !== 'terminated' || depth > 0) stopped.resolve(new LaunchError(code, message));
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  const first = await Promise.race([stopped.promise, launching]);
  signal.removeEventListener('abort', onAbort);
  void launching.then((launched) => {
    if (launched !== first && !(launched instanceof LaunchError)) launched.run.dispose();
  });
  return first;
}

const isQuota = (code: Stop['code']): code is EndingQuotaCode => code.startsWith('quota-');
