import type { Files } from '#scheduler/invocations/files.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { AppendOutcome, Usage } from '#scheduler/invocations/types.ts';
import type { Metered } from '#scheduler/quotas/exceeded.ts';
import type { TokenAsk } from '#scheduler/quotas/grants.ts';
import type { InvocationFiles } from '../host/invocation-services.ts';
import type { AttemptLog } from './outbox-options.ts';

/**
 * Connects an attempt's log with its inferlet: the log reports the inferlet's usage, and the inferlet obeys the quotas
 * in the store's answers.
 */
export interface AttemptMeter {
  /** Copies the present token counts; see `MarkedUsage`. */
  mark: () => void;
  /** Usage up to now, with the token counts of the last `mark`; undefined while there is no inferlet. */
  marked: () => Usage | undefined;
  /** Usage up to now; undefined while there is no inferlet. */
  usage: () => Usage | undefined;
  /** The tokens to ask for with a report of usage; null for none. `answered` or `unanswered` follows. */
  ask: () => TokenAsk | null;
  /** Called with the store's answer to a call that reported usage. @param hasAsked true when the call carried an `ask` */
  answered: (answer: Metered<unknown>, hasAsked: boolean) => void;
  /** Called when a call that carried an `ask` has failed. */
  unanswered: () => void;
}

/** The meter of an attempt whose inferlet does not exist yet; `AttemptRun` replaces its functions. */
export function silentMeter(): AttemptMeter {
  return {
    mark: () => undefined,
    marked: () => undefined,
    usage: () => undefined,
    ask: () => null,
    answered: () => undefined,
    unanswered: () => undefined,
  };
}

/**
 * The log of an attempt. Its `lastSeq` resolves to null when the attempt is over, or when Redis has lost the attempt.
 *
 * @param showsOwnEvents true when the attempt itself shows its events to followers; see `AttemptWrite`
 * @param meter gets the store's answers to reported usage
 */
export function attemptLog(
  invocations: Invocations,
  { id, epoch, showsOwnEvents }: { readonly id: string; readonly epoch: number; readonly showsOwnEvents: boolean },
  meter: AttemptMeter,
): AttemptLog {
  /** Makes a call that reports usage, with an ask for tokens. */
  const metered = async (call: (ask: TokenAsk | null) => Promise<Metered<AppendOutcome>>): Promise<AppendOutcome> => {
    const ask = meter.ask();
    try {
      const answer = await call(ask);
      meter.answered(answer, ask !== null);
      return answer.outcome;
    } catch (error) {
      if (ask !== null) meter.unanswered();
      throw error;
    }
  };
  return {
    append: async (firstSeq, events, usage) => {
      const write = { id, epoch, firstSeq, events, usage, showsOwnEvents };
      return usage ? metered((ask) => invocations.write({ ...write, ask })) : (await invocations.write(write)).outcome;
    },
    report: (usage) => metered((ask) => invocations.report(id, epoch, usage, ask)),
    lastSeq: async () => {
      const record = await invocations.get(id);
      return record?.status === 'running' && record.epoch === epoch ? record.seq : null;
    },
  };
}

/** An invocation's files, for one attempt: each `put` names the attempt's epoch, so that the store refuses it once the attempt is over. */
export function ownFiles(files: Files, id: string, epoch: number): InvocationFiles {
  return {
    put: (name, mediaType, content) => files.put(id, name, mediaType, content, epoch),
    appears: (name, signal) => files.appears(id, name, signal),
    get: (name) => files.get(id, name),
    list: () => files.list(id),
  };
}
