import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { changeFault, type LimitChange, MAX_SETTINGS } from '#scheduler/quotas/limits.ts';
import { spanNumber, spanStart } from '#scheduler/quotas/names.ts';
import type { QuotaState } from '#scheduler/quotas/quotas.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import type { SpanCounts } from '#scheduler/usage/usage.ts';
import type { Call } from '../app/control.ts';
import { GatewayError, unknownTenant } from '../app/errors/gateway-error.ts';
import { requireScope } from '../app/require-scope.ts';
import type { MinuteRow, QuotaChange, QuotaStatus, Quotas, UsageQuery, UsageRow } from '../app/resources/quotas.ts';
import { translating } from './store-errors.ts';

/** Reads and changes a tenant's quotas, and reads its usage, in Redis. */
export class NodeQuotas implements Quotas {
  readonly #scheduler: Scheduler;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]> {
    return translating(async () => {
      await this.#requireReadable(call, tenant);
      const { quotas } = this.#scheduler;
      if (fn === undefined) return (await quotas.statusOfAll(tenant)).map(toStatus);
      const states = FUNCTION_NAME.test(fn) ? await quotas.status(tenant, fn) : [];
      // The limits of a removed function are shown. A function without limits must exist.
      if (!states.some((state) => state.function === fn)) await this.#requireFunction(tenant, fn, 'function');
      return states.map(toStatus);
    });
  }

  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null> {
    return translating(async () => {
      requireScope(call, 'operator');
      await this.#requireTenant(tenant);
      const { quotas, audit, store } = this.#scheduler;
      const limitChange = toChange(change, store.clock());
      // A limit of a removed function can still be removed.
      if (limitChange.function !== null && limitChange.limit !== null)
        await this.#requireFunction(tenant, limitChange.function, '/function');
      const note = { author: call.principal.keyId, reason: change.reason ?? '' };
      if ((await quotas.set(tenant, limitChange, note)) === 'full') {
        throw new GatewayError(
          'invalid-quota',
          `The tenant ${tenant} has ${MAX_SETTINGS} quota settings, the maximum.`,
          { hint: 'Remove one that is not needed: `pie quota set QUOTA none --function NAME` restores the default.' },
        );
      }
      const { quota, function: fn } = limitChange;
      await audit.record(call.principal.keyId, tenant, 'quota.set', fn === null ? quota : `${quota}/${fn}`, {
        ...change,
      });
      await this.#scheduler.pokeAdmission(tenant);
      const states = await quotas.status(tenant, fn);
      const currentState = states.find((state) => state.quota === quota && state.function === fn);
      return currentState === undefined ? null : toStatus(currentState);
    });
  }

  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]> {
    return translating(async () => {
      const { tenant, by, perFunction } = query;
      await this.#requireReadable(call, tenant);
      const now = this.#scheduler.store.clock();
      const from = query.from === undefined ? spanStart('month', spanNumber('month', now)) : Date.parse(query.from);
      const to = query.to === undefined ? now : Date.parse(query.to);
      if (from > to) throw new GatewayError('invalid-input', '`from` is after `to`.', { field: 'from' });
      const rows = await this.#scheduler.usage.spans(tenant, by, from, to, perFunction ? 'functions' : 'tenant');
      return rows.map((row) => toRow(tenant, row));
    });
  }

  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]> {
    return translating(async () => {
      await this.#requireReadable(call, tenant);
      const rows = await this.#scheduler.usage.minutes(tenant, minutes);
      return rows.map(({ at, counts, firstMessages, firstMessageMs, failures, rejections }) => ({
        at: new Date(at).toISOString(),
        invocations: counts.invocations,
        outputTokens: counts.outputTokens,
        firstTokens: firstMessages,
        firstTokenMs: firstMessageMs,
        failures,
        rejections,
      }));
    });
  }

  /** A key may always see its own tenant's quotas and usage. */
  async #requireReadable(call: Call, tenant: string): Promise<void> {
    if (tenant === call.principal.tenant) return;
    requireScope(call, 'operator');
    await this.#requireTenant(tenant);
  }

  /** Throws for a function that the tenant cannot invoke. */
  async #requireFunction(tenant: string, fn: string, field: string): Promise<void> {
    const versions = FUNCTION_NAME.test(fn) ? await this.#scheduler.functions.visibleVersions(tenant, fn) : [];
    if (versions.length === 0)
      throw new GatewayError('unknown-function', `The tenant ${tenant} has no function "${fn}".`, { field });
  }

  async #requireTenant(tenant: string): Promise<void> {
    if ((await this.#scheduler.tenants.get(tenant)) === null) throw unknownTenant(tenant);
  }
}

/** Checks a change and converts it to its stored form. */
function toChange(change: QuotaChange, now: number): LimitChange {
  const { quota, limit, expiresAt } = change;
  const until = expiresAt === undefined ? null : Date.parse(expiresAt);
  const fn = change.function ?? null;
  const fault = changeFault({ quota, function: fn, limit, until }, now);
  if (fault !== null) throw new GatewayError('invalid-quota', fault.message, { field: fault.field });
  if (fn !== null && !FUNCTION_NAME.test(fn)) {
    throw new GatewayError('invalid-quota', `"${fn.slice(0, 100)}" is not a valid function name.`, {
      field: '/function',
      hint: 'A name begins with a lower-case letter and holds lower-case letters, digits and "-", 63 at most.',
    });
  }
  return { quota, function: fn, limit, until };
}

/** Converts a quota to the API's form. */
function toStatus({ quota, function: fn, limit, used, resetsAt, source, override }: QuotaState): QuotaStatus {
  return {
    quota,
    function: fn,
    limit,
    used,
    resetsAt: resetsAt === null ? null : new Date(resetsAt).toISOString(),
    source,
    ...(override !== null && {
      override: {
        author: override.author,
        expiresAt: new Date(override.until).toISOString(),
        reason: override.reason,
      },
    }),
  };
}

function toRow(tenant: string, { at, function: fn, counts }: SpanCounts): UsageRow {
  return { at: new Date(at).toISOString(), tenant, function: fn, ...counts };
}
