import type { Files } from '#scheduler/invocations/files.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Metered } from '#scheduler/quotas/exceeded.ts';
import type { InvocationFiles } from '../host/invocation-services.ts';
import type { AttemptLog } from './outbox-options.ts';

/** Reports an attempt's usage to the store and takes the quotas from its answers. Silent until the inferlet exists. */
export interface AttemptMeter {
  /** Assigns the tokens counted so far to the next write. */
  mark: () => void;
  /** Usage up to now, with the tokens of the last mark. */
  marked: () => Usage | undefined;
  /** Usage up to now. */
  usage: () => Usage | undefined;
  answered: (reported: Usage, answer: Metered<unknown>) => void;
}

/** The meter of an attempt whose inferlet does not exist yet. */
export function silentMeter(): AttemptMeter {
  return { mark: () => undefined, marked: () => undefined, usage: () => undefined, answered: () => undefined };
}

/** The log of an attempt; `lastSeq` is null also when Redis lost the attempt. @param showsOwnEvents true when the attempt shows unlogged events */
export function attemptLog(
  invocations: Invocations,
  { id, epoch, showsOwnEvents }: { readonly id: string; readonly epoch: number; readonly showsOwnEvents: boolean },
  meter: AttemptMeter,
): AttemptLog {
  return {
    append: async (firstSeq, events, usage) => {
      const answer = await invocations.write({ id, epoch, firstSeq, events, usage, showsOwnEvents });
      if (usage) meter.answered(usage, answer);
      return answer.outcome;
    },
    report: async (usage) => {
      const answer = await invocations.report(id, epoch, usage);
      meter.answered(usage, answer);
      return answer.outcome;
    },
    lastSeq: async () => {
      const record = await invocations.get(id);
      return record?.status === 'running' && record.epoch === epoch ? record.seq : null;
    },
  };
}

/** The files of one attempt: each file that it puts carries the attempt's epoch. */
export function ownFiles(files: Files, id: string, epoch: number): InvocationFiles {
  return {
    put: (name, mediaType, content) => files.put(id, name, mediaType, content, epoch),
    appears: (name, signal) => files.appears(id, name, signal),
    get: (name) => files.get(id, name),
    list: () => files.list(id),
  };
}
