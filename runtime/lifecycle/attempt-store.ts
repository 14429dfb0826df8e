import type { Files } from '#scheduler/invocations/files.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Metered } from '#scheduler/quotas/exceeded.ts';
import type { OwnFiles } from '../host/own.ts';
import type { AttemptLog } from './outbox-options.ts';

/** What an attempt says of its usage, and hears of its quotas; it says nothing before its inferlet is there. */
export interface AttemptMeter {
  mark: () => void;
  marked: () => Usage | undefined;
  /** By now. */
  usage: () => Usage | undefined;
  answered: (told: Usage, answer: Metered<unknown>) => void;
}

/** Before there is an inferlet. */
export function silentMeter(): AttemptMeter {
  return { mark: () => undefined, marked: () => undefined, usage: () => undefined, answered: () => undefined };
}

/** The log of an attempt. When Redis has lost the attempt itself, it is not the attempt's any more. */
/** @param shown the attempt shows its events itself */
export function attemptLog(
  invocations: Invocations,
  { id, epoch, shown }: { readonly id: string; readonly epoch: number; readonly shown: boolean },
  meter: AttemptMeter,
): AttemptLog {
  return {
    append: async (firstSeq, events, usage) => {
      const answer = await invocations.write({ id, epoch, firstSeq, events, usage, shown });
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

/** The files of one attempt: what it puts there carries its epoch. */
export function ownFiles(files: Files, id: string, epoch: number): OwnFiles {
  return {
    put: (name, mediaType, content) => files.put(id, name, mediaType, content, epoch),
    appears: (name, signal) => files.appears(id, name, signal),
    get: (name) => files.get(id, name),
    list: () => files.list(id),
  };
}
