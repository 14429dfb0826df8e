import { Queue, Worker } from 'bullmq';
import type { Redis } from 'ioredis';

export interface BareOptions {
  /** Jobs that the worker runs at once. */
  readonly slots: number;
  /** Jobs that wait while others hold all slots. */
  readonly queued: number;
  /** Concurrent submitters, each of which adds one job at a time. */
  readonly submitters: number;
}

/** Cost of filling a queue while other jobs hold every slot, and of draining it. */
export interface DrainCost {
  /** From before the first submission to the last end, in ms. */
  readonly totalMs: number;
  /** From the release of the slots to the last end, in ms. */
  readonly drainMs: number;
  /** CPU time of Redis from before the first submission to the last end, in µs. */
  readonly redisUs: number;
}

/** CPU time that Redis has used, in µs. */
export async function redisCpuUs(redis: Redis): Promise<number> {
  const info = await redis.info('cpu');
  const read = (name: string) => Number(new RegExp(`^${name}:([0-9.]+)`, 'm').exec(info)?.[1]);
  return (read('used_cpu_user') + read('used_cpu_sys')) * 1e6;
}

/** Fills and drains a plain BullMQ queue, whose processor does nothing, as the admission benchmark fills and drains the platform's queue. */
export async function drainBareQueue(redis: Redis, { slots, queued, submitters }: BareOptions): Promise<DrainCost> {
  const connection = redis.duplicate({ maxRetriesPerRequest: null, commandTimeout: undefined });
  const options = { connection, prefix: 'bare' };
  const queue = new Queue('bare', options);
  const allHolding = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  let holding = 0;
  const hold = async () => {
    if (++holding === slots) allHolding.resolve();
    await release.promise;
  };
  const worker = new Worker('bare', ({ data }) => (data.hold ? hold() : Promise.resolve()), {
    ...options,
    concurrency: slots,
    removeOnComplete: { count: 0 },
  });
  let done = 0;
  worker.on('completed', () => {
    if (++done === slots + queued) ended.resolve();
  });
  worker.on('error', ended.reject);
  try {
    await worker.waitUntilReady();
    const cpuBeforeUs = await redisCpuUs(redis);
    const startMs = performance.now();
    await Promise.all(Array.from({ length: slots }, () => queue.add('job', { hold: true })));
    await Promise.race([allHolding.promise, ended.promise]);
    let unsubmitted = queued;
    const submit = async () => {
      while (unsubmitted-- > 0) await queue.add('job', { hold: false });
    };
    await Promise.all(Array.from({ length: submitters }, submit));
    const drainStartMs = performance.now();
    release.resolve();
    await ended.promise;
    const endMs = performance.now();
    const redisUs = (await redisCpuUs(redis)) - cpuBeforeUs;
    return { totalMs: endMs - startMs, drainMs: endMs - drainStartMs, redisUs };
  } finally {
    release.resolve();
    await worker.close();
    await queue.obliterate({ force: true });
    await queue.close();
    connection.disconnect();
  }
}
