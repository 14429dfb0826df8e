import { setTimeout as sleep } from 'node:timers/promises';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { FailureCode, RequeueOutcome, Usage } from '#scheduler/invocations/types.ts';
import type { ObservedRun } from '../telemetry/run-observer.ts';
import type { Family } from './family.ts';
import type { Outbox } from './outbox.ts';
import type { Verdict } from './verdict.ts';

/** Longest wait for GPU hosts that are away, before an invocation that lost one goes back in line. */
const DEVICES_BACK_MS = 10_000;
const LOOK_MS = 50;

const RESTARTING: ReadonlySet<FailureCode> = new Set(['terminated', 'device-lost', 'runtime-lost']);

/** The platform ended the invocation, not its guest: a restartable one may go on in another attempt. */
export function mayRestart(verdict: Verdict): verdict is Extract<Verdict, { kind: 'error' }> {
  return verdict.kind === 'error' && RESTARTING.has(verdict.code);
}

/** An attempt that somebody else's doing has ended. */
export interface EndedAttempt {
  readonly attempt: {
    readonly job: InvocationJob;
    readonly epoch: number;
    readonly outbox: Outbox;
    readonly signal: AbortSignal;
    readonly family: Family;
    readonly observed: ObservedRun | undefined;
  };
  readonly verdict: Extract<Verdict, { kind: 'error' }>;
  /** GPU hosts that were lost with what it held there. */
  readonly lost: readonly Pick<GpuHostConnection, 'connected'>[];
  readonly usage: () => Usage;
  /** Resolves when all that it held on GPU hosts is given back. */
  readonly released: Promise<void>;
}

/**
 * Gives an attempt up, so that its invocation starts anew from its original place in line; everything that it held is given back before.
 * Answers the verdict that is left, or null when it is to end with its own.
 */
export async function restart(
  { invocations, onError }: { readonly invocations: Invocations; readonly onError?: (error: unknown) => void },
  { attempt, verdict, lost, usage, released }: EndedAttempt,
): Promise<Verdict | null> {
  const { job, epoch, outbox, signal, family } = attempt;
  if (job.restartable === false) return null;
  await released;
  if (verdict.code === 'device-lost') await devicesBack(lost, signal);
  const pages = Object.fromEntries(family.pages.peak);
  const cause = verdict.cause ?? verdict.message;
  // Only memory that was taken has a hint when there may be some again; not so what a newer attempt or a shutdown ended.
  const forMemory = verdict.code === 'terminated' && (verdict.retryAfterMs ?? 0) > 0;
  let outcome: RequeueOutcome | null;
  try {
    outcome = await outbox.finish((seq) => invocations.requeue(job.id, epoch, seq, cause, usage(), pages, forMemory));
  } catch (error) {
    // It ends with its verdict instead.
    onError?.(error);
    return null;
  }
  switch (outcome) {
    case 'not-restartable':
    case 'no-attempts-left':
      return null;
    case 'cancelled':
      return { kind: 'error', code: 'cancelled', message: 'The invocation was cancelled.' };
    case 'requeued':
      attempt.observed?.ended('requeued', cause, usage());
      return { kind: 'silent' };
    case 'stale':
    case 'ended':
    case null:
      return { kind: 'silent' };
  }
}

/**
 * Resolves when these GPU hosts can be reached, at the latest after 10 s, or when nobody waits any more: another attempt
 * would lose its device at once as long as one is away.
 */
async function devicesBack(connections: EndedAttempt['lost'], signal: AbortSignal): Promise<void> {
  const until = performance.now() + DEVICES_BACK_MS;
  while (connections.some(({ connected }) => !connected) && performance.now() < until) {
    if (signal.aborted) return;
    await sleep(LOOK_MS);
  }
}
