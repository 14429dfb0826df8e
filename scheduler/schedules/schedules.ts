import { randomUUID } from 'node:crypto';
import { Queue, type RepeatStrategy } from 'bullmq';
import { Cron } from 'croner';
import type { Redis } from 'ioredis';
import { SHARED_FUNCTIONS } from '../functions/functions.ts';
import { SCHEDULE_QUEUE } from '../keys.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import type { Quotas } from '../quotas/quotas.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import {
  DEFAULT_SCHEDULES,
  type LastTime,
  type Schedule,
  type ScheduleSettings,
  type TimedSchedule,
  type Timing,
} from './rules.ts';

const SCRIPTS = {
  put: loadScript(new URL('./schedules.lua', import.meta.url), 'put-schedule'),
  removeOrphan: loadScript(new URL('./schedules.lua', import.meta.url), 'remove-orphan'),
  note: loadScript(new URL('./schedules.lua', import.meta.url), 'note-time'),
  resume: loadScript(new URL('./schedules.lua', import.meta.url), 'resume-schedule'),
};

/** Number of times that BullMQ runs one firing whose invocation cannot be made, for instance while the store is away. */
const FIRING_TRIES = 5;
/** Pause between two of these tries. */
const RETRY_MS = 5000;
/** Approximate number of entries in BullMQ's own stream of events, which Pie does not read. */
const BULL_EVENTS = 100;

/** The data of BullMQ's job for one firing: the schedule that fires. */
export interface FiringJob {
  readonly tenant: string;
  readonly name: string;
  /** `Schedule.id`. */
  readonly id: string;
}

/**
 * The schedules of tenants. A schedule has two parts: an entry in its tenant's hash, which is authoritative, and a job
 * scheduler of BullMQ, which fires at the times of the schedule. A schedule that replaces another one has a new id, and
 * the job scheduler carries the id of the entry for which it was started. A job scheduler that fires without an entry is removed, and a gateway that starts
 * creates missing ones. Each change reads the entry again after its second write, so that both parts agree after concurrent changes.
 *
 * All times that pass while no gateway runs lead to one invocation. Any other time makes one: its idempotency key names schedule and time.
 */
export class Schedules {
  readonly #store: Store;
  readonly #quotas: Pick<Quotas, 'limit'>;
  readonly #connect: () => Redis;
  /** Opened by the first use, because a runtime needs none. */
  #queue: Queue<FiringJob> | undefined;
  #connection: Redis | undefined;

  /**
   * @param connect opens a connection for the queue alone: BullMQ defines its scripts on its connection, and ioredis copies all of them into each
   *   pipeline there, which would slow down any other user of the connection
   */
  constructor(store: Store, quotas: Pick<Quotas, 'limit'>, connect: () => Redis) {
    this.#store = store;
    this.#quotas = quotas;
    this.#connect = connect;
  }

  /**
   * Stores a schedule, or replaces the tenant's schedule of that name. Its timing must be valid (`timingFault`,
   * `cronFault`). Returns null when the tenant has no such function.
   *
   * @param by id of the API key that sets the schedule
   * @throws QuotaExceeded when the schedule is new and the tenant may have no more
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

  /**
   * Resumes a suspended schedule (`LastTime.suspended`), and leaves any other one as it is. Null when there is no such schedule. A schedule with an
   * interval then begins anew, with an invocation at once.
   */
  async resume(tenant: string, name: string): Promise<TimedSchedule | null> {
    await this.#store.script(SCRIPTS.resume, [this.#store.keys.schedules(tenant)], [name]);
    await this.align(tenant, name);
    const schedule = await this.get(tenant, name);
    return schedule && this.#withNextTime(schedule);
  }

  /** Removes a schedule; false when there is no such schedule. Invocations that it has made go on. */
  async remove(tenant: string, name: string): Promise<boolean> {
    const { keys } = this.#store;
    // The answer to `HDEL` does not show this: when the connection loses the first answer, the store repeats the command.
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

  /** Removes the job scheduler of a schedule, but not its entry. */
  async stop(tenant: string, name: string): Promise<void> {
    await this.#step(tenant, name, (queue, id) => queue.removeJobScheduler(id));
  }

  /** Stores the outcome of one firing of a schedule. */
  async note({ tenant, name, id }: FiringJob, last: LastTime): Promise<void> {
    await this.#store.script(SCRIPTS.note, [this.#store.keys.schedules(tenant)], [name, id, JSON.stringify(last)]);
  }

  /**
   * Aligns all schedules. Returns the number of those whose job scheduler was missing or belonged to an earlier entry.
   */
  async repair(): Promise<number> {
    const { keys } = this.#store;
    let repaired = 0;
    for (const tenant of await this.#store.call((redis) => redis.smembers(keys.scheduledTenants)))
      for (const { name } of await this.#schedulesOf(tenant)) if (await this.align(tenant, name)) repaired++;
    return repaired;
  }

  /**
   * Brings the job scheduler of a schedule in line with its entry. The two differ when a process died between its
   * writes of them: the job scheduler is missing, or belongs to an earlier entry. Other processes may change both
   * during this call. So the call reads the entry again after it has changed the job scheduler, and ends once it reads
   * the same entry twice in a row. Returns true when the call started the job scheduler.
   */
  async align(tenant: string, name: string): Promise<boolean> {
    let isStarted = false;
    for (let alignedId: string | null | undefined; ; ) {
      const schedule = await this.get(tenant, name);
      const id = schedule === null || schedule.last?.suspended === true ? null : schedule.id;
      if (id === alignedId) return isStarted;
      if (schedule === null || id === null) await this.stop(tenant, name);
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

  /** True when the job scheduler was started for the present entry of the schedule. */
  async #runs({ tenant, name, id }: Schedule): Promise<boolean> {
    const running = await this.#step(tenant, name, (queue, jobSchedulerId) => queue.getJobScheduler(jobSchedulerId));
    return running?.template?.data?.id === id;
  }

  async #start({ tenant, name, id, timing }: Schedule): Promise<void> {
    const repeat = 'cron' in timing ? { pattern: timing.cron, tz: timing.timezone } : { every: timing.everyMs };
    const opts = { attempts: FIRING_TRIES, backoff: RETRY_MS, removeOnComplete: true, removeOnFail: true };
    const job = { name: 'fire', data: { tenant, name, id }, opts };
    await this.#step(tenant, name, (queue, jobSchedulerId) => queue.upsertJobScheduler(jobSchedulerId, repeat, job));
  }

  /**
   * Runs a step of an alignment: one call of BullMQ's queue. When the queue does not answer in time, this method throws, but BullMQ's connection may
   * still carry the step out later. Other processes may have changed the schedule by then, so a late step is followed by another alignment.
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
        // A late step that fails has changed nothing. An alignment that fails here is repeated when the next gateway starts (`repair`).
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
      settings: { repeatStrategy },
    });
    // Errors of the queue reach the callers of its methods.
    this.#queue.on('error', () => undefined);
    return this.#queue;
  }
}

/** Id of the job scheduler of a schedule. Neither name contains a slash. */
const schedulerId = (tenant: string, name: string): string => `${tenant}/${name}`;

function parse(tenant: string, text: string): Schedule {
  const { last = null, ...entry } = JSON.parse(text) as Omit<Schedule, 'tenant' | 'last'> & { last?: LastTime };
  return { ...entry, tenant, last };
}

type Pattern = Extract<Timing, { cron: string }>;

/** A field of a pattern: its numbers, and the names that stand for some of them. */
interface Field {
  readonly least: number;
  readonly most: number;
  /** Number of different values: 7 stands for Sunday, as 0 does. */
  readonly size: number;
  /** Names of the values from `least` on. */
  readonly names?: readonly string[];
}

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const WEEKDAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const FIELDS: readonly Field[] = [
  { least: 0, most: 59, size: 60 },
  { least: 0, most: 23, size: 24 },
  { least: 1, most: 31, size: 31 },
  { least: 1, most: 12, size: 12, names: MONTHS },
  { least: 0, most: 7, size: 7, names: WEEKDAYS },
];

/** Reason for which a pattern that passed `timingFault` is refused; null when the pattern is valid. */
export function cronFault(pattern: Pattern, now: number): string | null {
  try {
    return nextAt(pattern, now) === null ? `No time fits the pattern "${pattern.cron}".` : null;
  } catch (error) {
    const text = error instanceof Error ? error.message.replace(/^CronPattern: /, '').replace(/\.$/, '') : error;
    return `The pattern "${pattern.cron}" is not valid: ${text}.`;
  }
}

/**
 * The next time of a cron pattern after `now`, ms since the epoch; null when there is none. A time that the local clock skips counts as the first
 * instant after the gap, and one that the clock shows twice as the first of both. Throws for an invalid pattern.
 */
export function nextAt({ cron, timezone }: Pattern, now: number): number | null {
  return new Cron(spelledOut(cron), { timezone, mode: '5-part' }).nextRun(new Date(now))?.getTime() ?? null;
}

/** The times of job schedulers of BullMQ. Its own strategy skips days that begin with a gap, and refuses values that a list names twice. */
export const repeatStrategy: RepeatStrategy = (now, { pattern = '', tz = 'UTC' }) =>
  nextAt({ cron: pattern, timezone: tz }, now) ?? undefined;

/** A part of a field's list: a value or a range, perhaps with a step. */
const PART = /^(?<first>\*|\?|\d{1,2}|[a-z]{3})(?:-(?<last>\d{1,2}|[a-z]{3}))?(?:\/(?<step>\d{1,3}))?$/i;

/** The pattern with lists in place of what croner lacks: ranges over the end of a field (`fri-mon`, `22-2`), `5/15` and steps beyond the end. */
function spelledOut(cron: string): string {
  const fields = cron.split(' ').map((text, i) => {
    const field = FIELDS[i];
    return field === undefined
      ? text
      : text
          .split(',')
          .map((part) => partOf(part, field))
          .join(',');
  });
  return fields.join(' ');
}

function partOf(part: string, { least, most, size, names = [] }: Field): string {
  const { first, last, step } = PART.exec(part)?.groups ?? {};
  if (first === undefined) return part;
  const isAll = first === '*' || first === '?';
  const numberOf = (text: string) => {
    const index = names.indexOf(text.toLowerCase());
    return index >= 0 ? least + index : Number(text);
  };
  const end = least + size - 1;
  const from = isAll ? least : numberOf(first);
  const to = last === undefined ? (isAll || step !== undefined ? end : from) : numberOf(last);
  const stride = Number(step ?? 1);
  const wraps = from > to;
  const isLacking = wraps || stride >= size || (step !== undefined && last === undefined && !isAll);
  const isNumber = (value: number) => value >= least && value <= most;
  // croner reports the faults of a part that is not valid.
  if (!isLacking || !isNumber(from) || !isNumber(to) || stride === 0 || (isAll && last !== undefined)) return part;
  const values = new Set<number>();
  const until = wraps ? to + size : to;
  for (let value = from; value <= until; value += stride) values.add(least + ((value - least) % size));
  return [...values].join(',');
}
