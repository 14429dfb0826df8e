import { randomUUID } from 'node:crypto';
import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { SHARED_FUNCTIONS } from '../functions/functions.ts';
import { SCHEDULE_QUEUE } from '../keys.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import type { Quotas } from '../quotas/quotas.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { DEFAULT_SCHEDULES } from './rules.ts';
import type { LastTime, Schedule, ScheduleSettings, TimedSchedule } from './types.ts';

const SCRIPTS = {
  put: loadScript(new URL('./scripts/put-schedule.lua', import.meta.url)),
  removeOrphan: loadScript(new URL('./scripts/remove-orphan.lua', import.meta.url)),
  note: loadScript(new URL('./scripts/note-time.lua', import.meta.url)),
};

/** Attempts to create the invocation of one firing while the store is away. */
const ATTEMPTS = 5;
const RETRY_MS = 5000;
const BULL_EVENTS = 100;

/** The data of a job of BullMQ: the schedule that fires. */
export interface FiringJob {
  readonly tenant: string;
  readonly name: string;
  readonly id: string;
}

export class Schedules {
  readonly #store: Store;
  readonly #quotas: Pick<Quotas, 'limit'>;
  readonly #connect: () => Redis;
  /** Opened by the first use, because a runtime needs none. */
  #queue: Queue<FiringJob> | undefined;
  #connection: Redis | undefined;

  /** @param connect opens a connection for the queue alone: each pipeline of ioredis copies the scripts that BullMQ defines on a connection */
  constructor(store: Store, quotas: Pick<Quotas, 'limit'>, connect: () => Redis) {
    this.#store = store;
    this.#quotas = quotas;
    this.#connect = connect;
  }

  /**
   * Stores a schedule, or replaces the one of its name. Its timing must be valid (`timingFault`, `cronFault`). Null when the tenant has no such
   * function.
   *
   * @throws QuotaExceeded when the tenant may have no more schedules.
   */
  async put(tenant: string, settings: ScheduleSettings, by: string): Promise<TimedSchedule | null> {
    const { keys, clock } = this.#store;
    const limit = (await this.#quotas.limit(tenant, 'schedules')) ?? DEFAULT_SCHEDULES;
    const entry = { ...settings, id: randomUUID(), createdAt: clock(), createdBy: by };
    const { name, function: fn } = settings;
    const ownFunctionKey = SHARED_FUNCTIONS.includes(fn) ? '' : keys.function(tenant, fn);
    // The script also adds the tenant to the set: `repair` must find an entry whose gateway died before it created the job scheduler.
    const reply = await this.#store.script(
      SCRIPTS.put,
      [keys.schedules(tenant), ownFunctionKey, keys.scheduledTenants],
      [name, JSON.stringify(entry), limit, tenant],
    );
    if (reply === 0)
      throw new QuotaExceeded({ quota: 'schedules', function: null, limit, used: limit, resetsAt: null }, clock());
    if (reply !== 1) return null;
    await this.align(tenant, name);
    return this.#withNextTime({ ...entry, tenant, last: null });
  }

  /** Null when there is no such schedule. */
  async get(tenant: string, name: string): Promise<Schedule | null> {
    const text = await this.#store.call((redis) => redis.hget(this.#store.keys.schedules(tenant), name));
    return text === null ? null : parse(tenant, text);
  }

  /** A tenant's schedules by name. */
  async list(tenant: string): Promise<TimedSchedule[]> {
    return Promise.all((await this.#schedulesOf(tenant)).map((schedule) => this.#withNextTime(schedule)));
  }

  /** Removes a schedule; false when there is no such schedule. Invocations that it has made go on. */
  async remove(tenant: string, name: string): Promise<boolean> {
    const { keys } = this.#store;
    // The answer to `HDEL` cannot tell: the connection sends the command again when it loses the first answer.
    const exists = (await this.#store.call((redis) => redis.hexists(keys.schedules(tenant), name))) === 1;
    await this.#store.call((redis) => redis.hdel(keys.schedules(tenant), name));
    await this.align(tenant, name);
    return exists;
  }

  /** Removes the schedules of a tenant's removed function. If the function has been deployed again meanwhile, its schedules stay. */
  async removeOf(tenant: string, fn: string): Promise<void> {
    const { keys } = this.#store;
    for (const { name } of (await this.#schedulesOf(tenant)).filter((one) => one.function === fn)) {
      await this.#store.script(SCRIPTS.removeOrphan, [keys.schedules(tenant), keys.function(tenant, fn)], [name, fn]);
      await this.align(tenant, name);
    }
  }

  /** Removes the job scheduler of a schedule, whose entry stays. */
  async stop(tenant: string, name: string): Promise<void> {
    await this.#step(tenant, name, (queue, id) => queue.removeJobScheduler(id));
  }

  /** Stores the outcome of one firing of a schedule. */
  async note({ tenant, name, id }: FiringJob, last: LastTime): Promise<void> {
    await this.#store.script(SCRIPTS.note, [this.#store.keys.schedules(tenant)], [name, id, JSON.stringify(last)]);
  }

  /** Aligns all schedules. Returns how many had no job scheduler, or one of an earlier state. */
  async repair(): Promise<number> {
    const { keys } = this.#store;
    let repaired = 0;
    for (const tenant of await this.#store.call((redis) => redis.smembers(keys.scheduledTenants)))
      for (const { name } of await this.#schedulesOf(tenant)) if (await this.align(tenant, name)) repaired++;
    return repaired;
  }

  /**
   * Brings the job scheduler of a schedule in line with its entry: a change that broke off leaves the job scheduler of an earlier state. Another
   * process may change both meanwhile, so the call ends only when the entry is still the same after its write. Returns true when the call started
   * the schedule.
   */
  async align(tenant: string, name: string): Promise<boolean> {
    let isStarted = false;
    for (let alignedId: string | null | undefined; ; ) {
      const schedule = await this.get(tenant, name);
      const id = schedule?.id ?? null;
      if (id === alignedId) return isStarted;
      if (schedule === null) await this.stop(tenant, name);
      else if (!(await this.#runs(schedule))) {
        await this.#start(schedule);
        isStarted = true;
      }
      alignedId = id;
    }
  }

  async close(): Promise<void> {
    await this.#queue?.close();
    this.#connection?.disconnect();
  }

  async #schedulesOf(tenant: string): Promise<Schedule[]> {
    const texts = await this.#store.call((redis) => redis.hvals(this.#store.keys.schedules(tenant)));
    return texts.map((text) => parse(tenant, text)).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** True when the job scheduler belongs to the present state of the schedule. */
  async #runs({ tenant, name, id }: Schedule): Promise<boolean> {
    const running = await this.#step(tenant, name, (queue, jobSchedulerId) => queue.getJobScheduler(jobSchedulerId));
    return running?.template?.data?.id === id;
  }

  async #start({ tenant, name, id, timing }: Schedule): Promise<void> {
    const repeat = 'cron' in timing ? { pattern: timing.cron, tz: timing.timezone } : { every: timing.everyMs };
    const opts = { attempts: ATTEMPTS, backoff: RETRY_MS, removeOnComplete: true, removeOnFail: true };
    const job = { name: 'fire', data: { tenant, name, id }, opts };
    await this.#step(tenant, name, (queue, jobSchedulerId) => queue.upsertJobScheduler(jobSchedulerId, repeat, job));
  }

  /**
   * Runs a step of an alignment. BullMQ's connection may carry the step out after this call has given up. Other processes may have changed the
   * schedule by then, so a late step starts another alignment.
   */
  async #step<T>(
    tenant: string,
    name: string,
    step: (queue: Queue<FiringJob>, schedulerId: string) => Promise<T>,
  ): Promise<T> {
    let isGivenUp = false;
    try {
      return await this.#store.call(() => {
        const sent = step(this.#openQueue(), schedulerId(tenant, name));
        // A step that fails has changed nothing. The next gateway that starts repeats an alignment that fails here.
        sent.then(() => isGivenUp && this.align(tenant, name)).catch(() => undefined);
        return sent;
      });
    } catch (error) {
      isGivenUp = true;
      throw error;
    }
  }

  async #withNextTime(schedule: Schedule): Promise<TimedSchedule> {
    const id = schedulerId(schedule.tenant, schedule.name);
    const scheduler = await this.#store.call(() => this.#openQueue().getJobScheduler(id));
    return { ...schedule, nextAt: scheduler?.next ?? null };
  }

  #openQueue(): Queue<FiringJob> {
    if (this.#queue !== undefined) return this.#queue;
    this.#connection = this.#connect();
    this.#connection.on('error', () => undefined);
    this.#queue = new Queue(SCHEDULE_QUEUE, {
      connection: this.#connection,
      prefix: this.#store.keys.bull,
      streams: { events: { maxLen: BULL_EVENTS } },
    });
    // The call that uses the connection reports its error.
    this.#queue.on('error', () => undefined);
    return this.#queue;
  }
}

/** Neither name contains a slash. */
const schedulerId = (tenant: string, name: string): string => `${tenant}/${name}`;

function parse(tenant: string, text: string): Schedule {
  const { last = null, ...entry } = JSON.parse(text) as Omit<Schedule, 'tenant' | 'last'> & { last?: LastTime };
  return { ...entry, tenant, last };
}
