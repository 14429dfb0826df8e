import type { Usage } from '#scheduler/invocations/types.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { beginAttempt, submission } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import type { GatewayPlatform } from './platform.ts';

/** An invocation at a time in the past. */
export interface PastRun {
  readonly function: string;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly usage: Usage;
  readonly failed?: boolean;
}

/** Runs invocations with a clock in the past, through the scheduler's own classes, so that there is usage of many days. */
export async function runInPast({ redis, lease }: GatewayPlatform, runs: readonly PastRun[]): Promise<void> {
  let now = 0;
  const scheduler = openScheduler({ log: silentLog, connect: redis.connect, clock: () => now });
  try {
    for (const { function: name, at, usage, failed = false } of runs) {
      now = at;
      const record = submission({ function: name, submittedAt: at });
      await scheduler.invocations.create(record);
      const attempt = await beginAttempt(scheduler, record.id, lease.id);
      if ('refused' in attempt) throw new Error(`the attempt was refused: ${attempt.refused}`);
      const end = failed
        ? ({
            event: 'error',
            code: 'trap',
            message: 'unreachable',
            data: '{"code":"trap","message":"unreachable"}',
          } as const)
        : ({ event: 'result', data: '{"output":null}' } as const);
      const outcome = await scheduler.invocations.finish(record.id, attempt.epoch, attempt.nextSeq, end, usage);
      if (outcome !== 'ok') throw new Error(`finish answered ${outcome}`);
    }
  } finally {
    await scheduler.close();
  }
}
