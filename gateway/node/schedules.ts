import type { Scheduler } from '#scheduler/scheduler.ts';
import type { TimedSchedule } from '#scheduler/schedules/rules.ts';
import { cronFault } from '#scheduler/schedules/schedules.ts';
import type { Call } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { type NewSchedule, type Schedules, type StoredSchedule, TIMES_HINT } from '../app/resources/schedules.ts';
import { translating } from './store-errors.ts';

/** The schedules of the caller's tenant, in Redis. */
export class NodeSchedules implements Schedules {
  readonly #scheduler: Pick<Scheduler, 'schedules' | 'functions' | 'audit'>;

  constructor(scheduler: Pick<Scheduler, 'schedules' | 'functions' | 'audit'>) {
    this.#scheduler = scheduler;
  }

  list({ principal }: Call): Promise<readonly StoredSchedule[]> {
    return translating(async () => (await this.#scheduler.schedules.list(principal.tenant)).map(toSchedule));
  }

  put({ principal }: Call, { name, function: fn, input, timing, check }: NewSchedule): Promise<StoredSchedule | null> {
    return translating(async () => {
      const { schedules, functions, audit } = this.#scheduler;
      const { tenant, keyId } = principal;
      const version = await functions.find(tenant, fn.name, fn.version);
      if (version === null) return null;
      check(version);
      const fault = 'cron' in timing ? cronFault(timing, Date.now()) : null;
      if (fault !== null) throw new GatewayError('invalid-input', fault, { field: '/cron', hint: TIMES_HINT });
      const settings = { name, function: fn.name, reference: fn.version ?? '', input, timing };
      const schedule = await schedules.put(tenant, settings, keyId);
      // The function was removed meanwhile.
      if (schedule === null) return null;
      await audit.record(keyId, tenant, 'schedule.set', name, { function: fn.name, ...timing });
      return toSchedule(schedule);
    });
  }

  resume({ principal: { tenant, keyId } }: Call, name: string): Promise<StoredSchedule | null> {
    return translating(async () => {
      const { schedules, audit } = this.#scheduler;
      const schedule = await schedules.resume(tenant, name);
      if (schedule === null) return null;
      await audit.record(keyId, tenant, 'schedule.resume', name);
      return toSchedule(schedule);
    });
  }

  remove({ principal: { tenant, keyId } }: Call, name: string): Promise<boolean> {
    return translating(async () => {
      const { schedules, audit } = this.#scheduler;
      const removed = await schedules.remove(tenant, name);
      if (removed) await audit.record(keyId, tenant, 'schedule.remove', name);
      return removed;
    });
  }
}

function toSchedule({
  name,
  function: fn,
  reference,
  input,
  timing,
  createdAt,
  createdBy,
  nextAt,
  last,
}: TimedSchedule): StoredSchedule {
  const iso = (ms: number) => new Date(ms).toISOString();
  return {
    name,
    function: reference === '' ? fn : `${fn}@${reference}`,
    inputText: input,
    ...timing,
    createdAt: iso(createdAt),
    createdBy,
    nextAt: nextAt === null ? null : iso(nextAt),
    ...(last?.suspended === true && { suspended: last.error?.message ?? '' }),
    last: last === null ? null : { at: iso(last.at), invocation: last.invocation, error: last.error },
  };
}
