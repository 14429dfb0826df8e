import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { EndedInvocation, EndLog } from '#scheduler/invocations/endings.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { RequeueOutcome, Usage } from '#scheduler/invocations/types.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { ObservedRun } from '../telemetry/run-observer.ts';
import type { Family } from './family.ts';
import type { Outbox } from './outbox.ts';
import type { PlatformFailure, Verdict } from './verdict.ts';

/** Longest wait for lost GPU hosts to return before their invocation goes back into the queue. */
const DEVICES_BACK_MS = 10_000;
const POLL_MS = 50;

/** The platform, not the guest, ended the attempt, so that a restartable invocation may start again in another attempt. */
export type RestartableFailure = PlatformFailure & { readonly code: 'terminated' | 'device-lost' | 'runtime-lost' };

const RESTARTING: ReadonlySet<PlatformFailure['code']> = new Set<RestartableFailure['code']>([
  'terminated',
  'device-lost',
  'runtime-lost',
]);

export function mayRestart(verdict: Verdict): verdict is RestartableFailure {
  return verdict.kind === 'error' && 'end' in verdict && RESTARTING.has(verdict.code);
}

/** An attempt that the platform has ended. */
export interface EndedAttempt {
  readonly attempt: {
    readonly job: InvocationJob;
    readonly epoch: number;
    readonly outbox: Outbox;
    readonly signal: AbortSignal;
    readonly family: Family;
    readonly observed: ObservedRun | undefined;
  };
  readonly verdict: RestartableFailure;
  /** GPU hosts that were lost, along with the attempt's memory on them. */
  readonly lost: readonly Pick<GpuHostConnection, 'connected'>[];
  readonly usage: () => Usage;
  /** Resolves when the attempt has given back everything it held on GPU hosts. */
  readonly released: Promise<void>;
}

/**
 * Requeues an attempt's invocation at its original place in the queue, after the attempt has given back everything it held.
 * Resolves to the final verdict; to null when the caller must end the invocation with the attempt's own verdict, which it decides anew.
 */
export async function restart(
  { invocations, ends, log }: { readonly invocations: Invocations; readonly ends: EndLog; readonly log: Logger },
  { attempt, verdict, lost, usage, released }: EndedAttempt,
): Promise<Verdict | null> {
  const { job, epoch, outbox, signal, family } = attempt;
  if (job.restartable === false) return null;
  await released;
  if (verdict.code === 'device-lost') await devicesBack(lost, signal);
  if (outbox.end !== null) return null;
  const pages = Object.fromEntries(family.pages.peak);
  const cause = verdict.cause ?? verdict.end.cause;
  // Of the terminated invocations, only one that lost its memory has a retry hint; one that a newer attempt or a shutdown ended has none.
  const forMemory = verdict.code === 'terminated' && (verdict.retryAfterMs ?? 0) > 0;
  let outcome: RequeueOutcome | null;
  try {
    outcome = await outbox.finish((seq) => invocations.requeue(job.id, epoch, seq, cause, usage(), pages, forMemory));
  } catch (error) {
    // When the outbox has ended, it has reported the error itself.
    if (outbox.end === null)
      log.error({ error, invocation: job.id }, 'an invocation could not be put back into the queue');
    return null;
  }
  switch (outcome) {
    case 'not-restartable':
    case 'no-attempts-left':
      return null;
    case 'cancelled':
      return { kind: 'error', code: 'cancelled', message: 'The invocation was cancelled.' };
    case 'requeued':
      ends.note(endedBy(job), { code: verdict.code, ...verdict.end }, 'starts-again');
      attempt.observed?.ended('requeued', cause, usage());
      return { kind: 'silent' };
    case 'stale':
    case 'ended':
    case null:
      return { kind: 'silent' };
  }
}

/** The invocation of a job, as the log names it. */
export const endedBy = ({ id, tenant, function: name }: InvocationJob): EndedInvocation => ({
  invocation: id,
  tenant,
  function: name,
});

/**
 * Waits until these GPU hosts can be reached again: while a host is away, another attempt would lose its device at once. Gives up after 10 s, or
 * when the signal aborts. When a host dies, the tenant's link to it may end a moment before the connection whose `connected` is read here, so the
 * first check comes after a pause.
 */
async function devicesBack(connections: EndedAttempt['lost'], signal: AbortSignal): Promise<void> {
  const until = performance.now() + DEVICES_BACK_MS;
  do {
    await sleep(POLL_MS);
    // If the process stood still, it first reads what has arrived meanwhile, so that `connected` is up to date.
    await nextTurn();
  } while (!signal.aborted && connections.some(({ connected }) => !connected) && performance.now() < until);
}
