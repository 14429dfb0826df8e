import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { DEFAULT_RESERVE } from '#scheduler/admission/policy.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { connectionOptions } from '#scheduler/store/connection.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, submit, type TenantClient, waitOf } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { tell } from './clients.ts';
import { format, formatSpread, quantile, spread } from './statistics.ts';

const SLOTS = 32;
const QUEUED = [100, 1000, 10_000] as const;
/** Interval of the other tenant's invocations while the queue drains. */
const PROBE_EVERY_MS = 200;
const UNLOADED_PROBES = 40;
const SUBMITTING = 64;
const JOB = { ticks: 0 };

interface Sample {
  readonly queued: number;
  readonly jobsPerSecond: number;
  readonly redisMicros: number;
  /** The same measurement on a bare BullMQ queue and worker. */
  readonly bareJobsPerSecond: number;
  readonly bareRedisMicros: number;
  /** Waits of the other tenant, ms. */
  readonly unloaded: readonly number[];
  readonly loaded: readonly number[];
}

/** Drains one tenant's queue through the whole platform while another tenant invokes at an interval. */
export const admission: Bench = {
  name: 'admission',
  summary: `wait of another tenant with ${QUEUED.join(', ')} queued; jobs a second; CPU of Redis`,
  async run({ repetitions, quick, progress }) {
    const sizes = quick ? QUEUED.slice(0, 2) : QUEUED;
    const samples: Sample[] = [];
    await using platform = await Platform.start({
      functions: false,
      config: `[runtime]\nconcurrency = ${SLOTS}\n\n[admission]\nmax_waiting = 20000\n`,
    });
    await deployWith(platform, 'ticker', { pool: { min: 8 } });
    const other = await createTenant(platform, 'other');
    await deployWith(platform, 'ticker', { pool: { min: 8 } }, other.apiKey);
    const config = loadConfig(platform.environment);
    const scheduler = openScheduler({ connect: () => connectRedis(config, connectionOptions()) });
    try {
      for (let round = 0; round < (quick ? 1 : Math.min(3, repetitions)); round++) {
        for (const queued of sizes) {
          const sample = await measure(platform, scheduler, other, queued);
          samples.push(sample);
          progress(
            `round ${round + 1}, ${queued} queued: ${format(sample.jobsPerSecond, 0)} jobs/s, the other waits ${format(quantile(sorted(sample.loaded), 0.5), 1)} ms`,
          );
        }
      }
    } finally {
      await scheduler.close();
    }
    return {
      title: 'A line of one tenant, drained; another tenant asks meanwhile',
      header: [
        'queued',
        'jobs/s',
        'over bare BullMQ',
        'Redis CPU a job, µs',
        'over bare BullMQ',
        'other waits, ms (p50, p95)',
        'over unloaded (p50)',
      ],
      rows: sizes.map((queued) => {
        const own = samples.filter((sample) => sample.queued === queued);
        const of = (pick: (sample: Sample) => number, digits = 2) => formatSpread(spread(own.map(pick)), digits);
        const loaded = sorted(own.flatMap((sample) => sample.loaded));
        return [
          String(queued),
          of((sample) => sample.jobsPerSecond, 0),
          of((sample) => sample.jobsPerSecond / sample.bareJobsPerSecond),
          of((sample) => sample.redisMicros, 0),
          of((sample) => sample.redisMicros / sample.bareRedisMicros),
          `${format(quantile(loaded, 0.5), 1)}, ${format(quantile(loaded, 0.95), 1)}`,
          of((sample) => median(sample.loaded) / median(sample.unloaded)),
        ];
      }),
      notes: [
        `${SLOTS} slots. A job is a whole invocation (record, event log, instance, result) of an inferlet that returns at once; a bare one is a BullMQ job`,
        `whose processor does nothing, with ${SLOTS} at once, on the same Redis. The wait is from submission to the start of the attempt.`,
      ],
      data: samples,
    };
  },
};

async function measure(platform: Platform, scheduler: Scheduler, other: TenantClient, queued: number): Promise<Sample> {
  const unloaded: number[] = [];
  for (let i = 0; i < UNLOADED_PROBES; i++) unloaded.push(await waitOf(other, 'ticker', JOB));

  const holders = await Promise.all(
    Array.from({ length: SLOTS }, () => submit(platform, 'ticker', { ...JOB, hold: true })),
  );
  // The scheduler reserves some slots for tenants that hold few.
  while ((await scheduler.queue.depth()).active < SLOTS * (1 - DEFAULT_RESERVE)) await sleep(20);
  let left = queued;
  await Promise.all(
    Array.from({ length: SUBMITTING }, async () => {
      while (left-- > 0) await submit(platform, 'ticker', JOB);
    }),
  );
  const { redis } = scheduler.store;
  const cpuBefore = await cpuSeconds(redis);
  const startedAt = performance.now();
  const loaded: number[] = [];
  let draining = true;
  const probing = (async () => {
    while (draining) {
      loaded.push(await waitOf(other, 'ticker', JOB));
      await sleep(PROBE_EVERY_MS);
    }
  })();
  await Promise.all(holders.map((id) => tell(platform, id, 'go')));
  for (;;) {
    const { waiting, active } = await scheduler.queue.depth();
    if (waiting + active === 0) break;
    await sleep(10);
  }
  const elapsedMs = performance.now() - startedAt;
  const cpu = (await cpuSeconds(redis)) - cpuBefore;
  draining = false;
  await probing;
  const jobs = queued + SLOTS + loaded.length;
  return {
    queued,
    jobsPerSecond: (jobs / elapsedMs) * 1000,
    redisMicros: (cpu / jobs) * 1e6,
    ...(await bare(redis, queued)),
    unloaded,
    loaded,
  };
}

/** The same number of jobs through BullMQ alone. */
async function bare(
  redis: Redis,
  jobs: number,
): Promise<{ readonly bareJobsPerSecond: number; readonly bareRedisMicros: number }> {
  const connection = redis.duplicate({ maxRetriesPerRequest: null, commandTimeout: undefined });
  const options = { connection, prefix: 'bare' };
  const queue = new Queue('bare', options);
  const cpuFrom = await cpuSeconds(redis);
  for (let done = 0; done < jobs; done += 1000) {
    const batch = Array.from({ length: Math.min(1000, jobs - done) }, () => ({ name: 'job', data: JOB }));
    await queue.addBulk(batch);
  }
  const startedAt = performance.now();
  let done = 0;
  await new Promise<void>((resolve) => {
    const worker = new Worker('bare', async () => null, {
      ...options,
      concurrency: SLOTS,
      removeOnComplete: { count: 0 },
    });
    worker.on('completed', () => {
      if (++done === jobs) void worker.close().then(() => resolve());
    });
  });
  const elapsedMs = performance.now() - startedAt;
  const cpu = (await cpuSeconds(redis)) - cpuFrom;
  await queue.obliterate({ force: true });
  await queue.close();
  connection.disconnect();
  return { bareJobsPerSecond: (jobs / elapsedMs) * 1000, bareRedisMicros: (cpu / jobs) * 1e6 };
}

/** CPU time that Redis has used, s. */
async function cpuSeconds(redis: Redis): Promise<number> {
  const info = await redis.info('cpu');
  const read = (name: string) => Number(new RegExp(`^${name}:([0-9.]+)`, 'm').exec(info)?.[1] ?? 0);
  return read('used_cpu_user') + read('used_cpu_sys');
}

const sorted = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);
const median = (values: readonly number[]): number => quantile(sorted(values), 0.5);
