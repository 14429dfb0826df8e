import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import type { InvocationEvent, InvocationLimits } from '../invocations/types.ts';
import type { RuntimeLease } from '../runtimes/lease.ts';
import { openScheduler, type Scheduler, type SchedulerOptions, type Submission } from '../scheduler.ts';
import type { Store } from '../store/store.ts';
import { silentLog } from './log.ts';
import type { TestRedis } from './redis.ts';
import { schemaFaults } from './schema.ts';

/** Limits that no test reaches. */
export const TEST_LIMITS: InvocationLimits = { cpuMs: 10_000, wallMs: 60_000, memoryMb: 64, pages: 1000, tokens: 1000 };

const TEST_MODEL = { contextLength: 2048, vocabularySize: 100, pageSize: 16, traits: [] };

/** Longer than any test blocks its event loop. Tests of the end of a lease set their own length. */
const LEASE_MS = 120_000;

/**
 * A scheduler with its own prefix on a test's Redis. By default, its leases do not run out. When the scheduler is closed, the keys that it leaves
 * must fit the table in `keys.ts`, so a test that damages a key on purpose must remove the key.
 */
export function openTestScheduler(redis: TestRedis, options: Partial<SchedulerOptions> = {}): Scheduler {
  const prefix = `test-${randomUUID()}`;
  const scheduler = openScheduler({ log: silentLog, connect: redis.connect, prefix, leaseMs: LEASE_MS, ...options });
  const close = scheduler.close.bind(scheduler);
  scheduler.close = async () => {
    await close();
    await assertSchema(redis, prefix);
  };
  return scheduler;
}

/** Maximum wait for the keys, ms: a test may have stopped its Redis (SIGSTOP). */
const SCHEMA_MS = 2000;

async function assertSchema(redis: TestRedis, prefix: string): Promise<void> {
  if (redis.pid === undefined) return;
  const connection = redis.connect();
  try {
    const timeout = sleep(SCHEMA_MS, [], { ref: false });
    assert.deepEqual(await Promise.race([schemaFaults(connection, prefix).catch(() => []), timeout]), []);
  } finally {
    connection.disconnect();
  }
}

/** An invocation to submit; a fresh id unless one is given. */
export function submission(options: Partial<Submission> = {}): Submission {
  return {
    id: `inv-${randomUUID()}`,
    tenant: 'default',
    function: 'story',
    version: 'abc123',
    submittedAt: Date.now(),
    deadlineMs: 60_000,
    restartable: false,
    input: '{}',
    limits: TEST_LIMITS,
    ...options,
  };
}

/** Registers a runtime that offers this capacity and runs nothing. The caller must release the lease. */
export function offer(
  scheduler: Scheduler,
  {
    pages = {},
    ...capacity
  }: { slots: number; pages?: Record<string, number>; overcommit?: number; reserve?: number; memoryMb?: number },
): Promise<RuntimeLease> {
  const models = Object.entries(pages).map(([name, pageCount]) => ({ ...TEST_MODEL, name, pageCount }));
  return scheduler.runtimes.acquire({ name: `offer-${randomUUID()}`, models, accepting: true, ...capacity });
}

/**
 * Makes a runtime hold a queued invocation, as if it had fetched the invocation's job from BullMQ. The invocation need not be first in its queue,
 * nor fit. Registers the runtime, which renews no lease.
 */
export async function hold(scheduler: Scheduler, id: string, runtimeId: string): Promise<void> {
  const { admission, store } = scheduler;
  const { keys, redis } = store;
  await registerRuntime(store, runtimeId);
  // Adds one slot at a time, so that few other invocations are admitted. Doubles the slots when a reserve takes them.
  for (let lastUsedSlots = -1, extraSlots = 1; (await redis.lrem(`${keys.jobs}:wait`, 1, id)) === 0; ) {
    const { usedSlots } = await admission.capacity();
    extraSlots = usedSlots === lastUsedSlots ? extraSlots * 2 : 1;
    if (extraSlots > 1e6) throw new Error(`${id} is not admitted, however much room there is.`);
    lastUsedSlots = usedSlots;
    await redis.set(keys.alive(ROOM), '{"running":0}');
    const room = { slots: usedSlots + extraSlots, starts: 1e6, overcommit: 1e6 };
    await redis.hset(
      keys.runtimes,
      ROOM,
      JSON.stringify({ ...room, id: ROOM, name: ROOM, startedAt: 0, accepting: true }),
    );
    await recount(scheduler);
  }
  await redis.hdel(keys.runtimes, ROOM);
  await redis.del(keys.alive(ROOM));
  // Updates the capacity, so that no other invocation is admitted into the removed offer.
  await recount(scheduler);
  await redis.lpush(`${keys.jobs}:active`, id);
  await redis.sadd(keys.held(runtimeId), id);
  // `pb` is BullMQ's field for the worker that processes the job.
  await redis.hset(`${keys.jobs}:${id}`, 'pb', runtimeId, 'processedOn', Date.now());
}

/**
 * Makes admission count all runtimes again: `hold` writes their descriptions without the script that counts them.
 * Admission counts anew when the field `leaving` is missing (`admission/rules.lua`).
 */
async function recount({ admission, store }: Scheduler): Promise<void> {
  await store.redis.hdel(`${store.keys.admission}:capacity`, 'leaving');
  await admission.admit();
}

/** Id of a temporary runtime that offers what `hold` needs. */
const ROOM = 'room';

/** Registers a runtime that offers nothing and renews no lease, unless it is registered. */
export async function registerRuntime({ redis, keys }: Store, id: string): Promise<void> {
  await redis.hsetnx(keys.runtimes, id, JSON.stringify({ id, name: id, startedAt: 0, slots: 0 }));
}

/** Begins an attempt; first makes the runtime hold the invocation when no runtime does. */
export async function beginAttempt(scheduler: Scheduler, id: string, runtimeId: string, token?: string) {
  const [record, holder] = await Promise.all([scheduler.invocations.get(id), scheduler.control.holder(id)]);
  if (record?.status === 'queued' && holder === null) await hold(scheduler, id, runtimeId);
  return scheduler.invocations.beginAttempt(id, runtimeId, token);
}

/** All events that a follower receives until the log ends. */
export async function collect(events: AsyncIterable<InvocationEvent>): Promise<InvocationEvent[]> {
  const collected: InvocationEvent[] = [];
  for await (const event of events) collected.push(event);
  return collected;
}

/** Waits until a condition holds. Fails after `deadlineMs`, which must be shorter than the test's own timeout. */
export async function eventually(
  condition: () => boolean | Promise<boolean>,
  what: string,
  deadlineMs = 120_000,
): Promise<void> {
  const until = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > until) throw new Error(`Did not happen within ${deadlineMs} ms: ${what}`);
    await sleep(10);
  }
}

/**
 * Names of the scripts that a library defined on a connection, as `<name>Buffer`: ioredis defines each script under this name, too. Each pipeline
 * of the connection, and so each call, copies these scripts.
 */
export const definedScripts = ({ redis }: Store): string[] =>
  Object.keys(redis.pipeline()).filter((name) => name.endsWith('Buffer'));
