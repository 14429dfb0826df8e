import type { PlatformEnd } from '../invocations/platform-end.ts';
import type { ProcessState } from '../policies/silence.ts';

/** Why a runtime is lost, with the figures that decided. */
export interface Loss {
  /** In words, for the end of a sentence about the runtime: `it ended: signal SIGKILL`. */
  readonly why: string;
  /** Time since its last sign of life, as far as it is known: the last renewal of the lease, or the last turn of its event loop, ms. */
  readonly silentMs?: number;
  /** Length of the lease, ms. */
  readonly leaseMs?: number;
  /** What the supervisor last saw of the process. */
  readonly look?: ProcessState;
}

/** Maximum ids of invocations in one record of the log. */
export const MAX_LOGGED_IDS = 100;

/** The loss of a runtime of which nothing more is known. */
export const UNEXPLAINED: Loss = { why: 'its invocations were taken from it' };

/** The end of an invocation whose runtime is lost. */
export function lossEnd(runtimeId: string, { why, ...figures }: Loss): PlatformEnd<'runtime-lost'> {
  const [name] = runtimeId.split('~');
  return {
    code: 'runtime-lost',
    cause: `The runtime that ran this invocation was lost (${name}): ${why}.`,
    figures: { runtime: runtimeId, ...figures },
  };
}
