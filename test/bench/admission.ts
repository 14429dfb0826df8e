import { setTimeout as sleep } from 'node:timers/promises';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { DEFAULT_RESERVE } from '#scheduler/admission/job.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { connectionOptions } from '#scheduler/store/connection.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { say } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';
import { createTenant, submit, type TenantClient } from '#test/harness/tenants.ts';
import { type DrainCost, drainBareQueue, redisCpuUs } from './bare-queue.ts';
import type { Bench } from './bench.ts';
import { outcomeMs } from './clients.ts';
import { type LoadGenerator, probeSteadily } from './load.ts';
import { inTurn, warmUp } from './rounds.ts';
import { format, formatSpread, formatTail, median, spread } from './statistics.ts';

const SLOTS = 32;
const QUEUED = [100, 1000, 10_000];
const QUICK_QUEUED = [1000];
/** Interval between the other tenant's invocations, with and without the queue. */
const PROBE_EVERY_MS = 200;
/** Time measured without a queue: half of it before the queue is filled, half after it is drained. */
const UNLOADED_MS = 8000;
const QUICK_UNLOADED_MS = 4000;
/** Length of the queue that warms both sides. */
const WARM_QUEUED = 100;
const SUBMITTERS = 64;
const JOB = { ticks: 0 };
const POLL_MS = 10;
const DRAIN_TIMEOUT_MS = 300_000;

interface Cost extends DrainCost {
  readonly jobs: number;
}

interface Sample {
  readonly queued: number;
  /** The platform's cost. */
  readonly own: Cost;
  /** The cost of the same number of jobs on a bare BullMQ queue and worker. */
  readonly bare: Cost;
  /** Times of the other tenant's invocations without a queue, in ms. */
  readonly unloaded: readonly number[];
  /** The same while the queue drains. */
  readonly loaded: readonly number[];
}

/** Fills and drains one tenant's queue through the whole platform while another tenant invokes at an interval. */
export const admission: Bench = {
  name: 'admission',
  summary: `another tenant's time with ${QUEUED.join(', ')} queued; jobs a second; CPU of Redis`,
  help: `${SLOTS} invocations hold every slot, a tenant submits ${QUEUED.join(', ')} more, the slots are released, and the queue drains. Another
tenant invokes every ${PROBE_EVERY_MS} ms meanwhile, and for ${UNLOADED_MS / 2000} s before and after. The baseline is a plain BullMQ queue on the
same Redis, filled and drained in the same way by a worker that does nothing. Jobs a second and the CPU of Redis count from before the first
submission on both sides. A round measures every length; platform and baseline take turns in going first.`,
  quick: `${QUICK_QUEUED.join(' and ')} queued (of ${QUEUED.join(', ')}), and ${QUICK_UNLOADED_MS / 1000} s without a queue instead of ${UNLOADED_MS / 1000}.`,
  async run({ repetitions, quick, progress }) {
    const [sizes, unloadedMs] = quick ? [QUICK_QUEUED, QUICK_UNLOADED_MS] : [QUEUED, UNLOADED_MS];
    const samples: Sample[] = [];
    await using platform = await Platform.start({
      functions: false,
      config: `[runtime]\nconcurrency = ${SLOTS}\n\n[admission]\nmax_waiting = 20000\n`,
    });
    await deployWith(platform, 'ticker', { pool: { min: 8 } });
    const other = await createTenant(platform, 'other');
    await deployWith(platform, 'ticker', { pool: { min: 8 } }, other.apiKey);
    const config = loadConfig(platform.environment);
    const scheduler = openScheduler({ log: silentLog, connect: () => connectRedis(config, connectionOptions()) });
    try {
      await warmUp(sidesOf(platform, scheduler, other, WARM_QUEUED));
      for (let round = 0; round < repetitions; round++) {
        for (const queued of sizes) {
          const sample = await measure({ platform, scheduler, other, queued, round, unloadedMs });
          samples.push(sample);
          progress(
            `round ${round + 1}, ${queued} queued: ${format(perSecond(sample.own), 0)} jobs/s, the other takes ${format(median(sample.loaded), 1)} ms`,
          );
        }
      }
    } finally {
      await scheduler.close();
    }
    return {
      title: 'A queue of one tenant, filled and drained; another tenant invokes meanwhile',
      header: [
        'queued',
        'jobs/s',
        'over bare BullMQ',
        'jobs/s draining',
        'over bare BullMQ',
        'Redis CPU a job, µs',
        'over bare BullMQ',
        'the other, ms (p50, p95)',
        'over unloaded (p50)',
      ],
      rows: sizes.map((queued) => {
        const ofLength = samples.filter((sample) => sample.queued === queued);
        const formatted = (pick: (sample: Sample) => number, digits = 2) =>
          formatSpread(spread(ofLength.map(pick)), digits);
        const loaded = ofLength.flatMap((sample) => sample.loaded);
        return [
          String(queued),
          formatted((sample) => perSecond(sample.own), 0),
          formatted((sample) => perSecond(sample.own) / perSecond(sample.bare)),
          formatted((sample) => drainedPerSecond(sample.own), 0),
          formatted((sample) => drainedPerSecond(sample.own) / drainedPerSecond(sample.bare)),
          formatted((sample) => redisUsOf(sample.own), 0),
          formatted((sample) => redisUsOf(sample.own) / redisUsOf(sample.bare)),
          formatTail(loaded, 1, 0.95),
          formatted((sample) => median(sample.loaded) / median(sample.unloaded)),
        ];
      }),
      notes: [
        `${SLOTS} slots. A job is a whole invocation (record, event log, instance, result) of an inferlet that returns at once; a bare one is a BullMQ job ` +
          `whose processor does nothing, with ${SLOTS} at once, on the same Redis, added one by one by ${SUBMITTERS} clients at once as the invocations are.`,
        'Jobs/s and Redis CPU count from before the first submission to the last end; draining: from the release of the slots. Redis CPU includes the idle platform.',
        'The time of the other tenant is from the request to the outcome at its HTTP client: launch, run and result included. Beside a short queue it has too few requests for a p95.',
      ],
      data: samples,
    };
  },
};

const perSecond = ({ jobs, totalMs }: Cost): number => (jobs * 1000) / totalMs;
const drainedPerSecond = ({ jobs, drainMs }: Cost): number => (jobs * 1000) / drainMs;
const redisUsOf = ({ jobs, redisUs }: Cost): number => redisUs / jobs;

const probe = (other: TenantClient): LoadGenerator<number> =>
  probeSteadily(PROBE_EVERY_MS, () => outcomeMs(other, 'ticker', JOB));

async function timesWithoutQueue(other: TenantClient, ms: number): Promise<number[]> {
  const probing = probe(other);
  await sleep(ms);
  return probing.stop();
}

interface Measuring {
  readonly platform: Platform;
  readonly scheduler: Scheduler;
  readonly other: TenantClient;
  readonly queued: number;
  readonly round: number;
  readonly unloadedMs: number;
}

const sidesOf = (platform: Platform, scheduler: Scheduler, other: TenantClient, queued: number) =>
  [
    () => drainPlatform(platform, scheduler, other, queued),
    () => drainBareQueue(scheduler.store.redis, { slots: SLOTS, queued, submitters: SUBMITTERS }),
  ] as const;

async function measure({ platform, scheduler, other, queued, round, unloadedMs }: Measuring): Promise<Sample> {
  const before = await timesWithoutQueue(other, unloadedMs / 2);
  const [{ loaded, ...own }, bare] = await inTurn(round, sidesOf(platform, scheduler, other, queued));
  const after = await timesWithoutQueue(other, unloadedMs / 2);
  return { queued, own, bare: { ...bare, jobs: SLOTS + queued }, unloaded: [...before, ...after], loaded };
}

/** Fills the platform's queue while other invocations hold every slot, and drains it while the other tenant invokes. */
async function drainPlatform(
  platform: Platform,
  { queue, store: { redis } }: Scheduler,
  other: TenantClient,
  queued: number,
): Promise<Cost & { readonly loaded: readonly number[] }> {
  const cpuBeforeUs = await redisCpuUs(redis);
  const startMs = performance.now();
  const holders = await Promise.all(
    Array.from({ length: SLOTS }, () => submit(platform, 'ticker', { ...JOB, hold: true })),
  );
  // The scheduler keeps a reserve of slots for tenants that hold few, so it may admit only the rest of the holders.
  await until('the holders run', async () => (await queue.depth()).active >= SLOTS * (1 - DEFAULT_RESERVE));
  let unsubmitted = queued;
  const submitting = Array.from({ length: SUBMITTERS }, async () => {
    while (unsubmitted-- > 0) await submit(platform, 'ticker', JOB);
  });
  await Promise.all(submitting);
  const drainStartMs = performance.now();
  const probing = probe(other);
  try {
    await Promise.all(holders.map((id) => say(platform, id, { text: 'go' })));
    while (await isBusy(queue)) {
      if (performance.now() - drainStartMs > DRAIN_TIMEOUT_MS) throw new Error('the queue did not drain');
      await sleep(POLL_MS);
    }
    const endMs = performance.now();
    const jobs = SLOTS + queued + probing.sent;
    const redisUs = (await redisCpuUs(redis)) - cpuBeforeUs;
    return {
      jobs,
      redisUs,
      totalMs: endMs - startMs,
      drainMs: endMs - drainStartMs,
      loaded: await probing.stop(),
    };
  } finally {
    await probing.stop().catch(() => undefined);
  }
}

async function isBusy(queue: Scheduler['queue']): Promise<boolean> {
  const { waiting, active } = await queue.depth();
  return waiting + active > 0;
}
