import { isQuotaName, quotaErrorCode, type Span, spanNumber, spanStart } from '../quotas/names.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { type FirstMessageTimes, quantile, toCounts, type UsageCounts } from './metered.ts';

/** Counts of one span, of one function or (null) of the tenant. */
export interface SpanCounts {
  /** Start of the span, ms since the epoch. */
  readonly at: number;
  readonly function: string | null;
  readonly counts: UsageCounts;
}

/** Counts of one minute, for the dashboard. */
export interface MinuteCounts {
  readonly at: number;
  readonly counts: UsageCounts;
  /** Number of first messages, and quantiles of the time from submission to them. */
  readonly firstMessages: number;
  readonly firstMessageMs: { readonly p50: number; readonly p95: number } | null;
  /** Failed invocations by failure code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Refused requests by error code. */
  readonly rejections: Readonly<Record<string, number>>;
}

/** Number of spans of each length that are kept; older ones read as empty. */
const KEPT_SPANS: Readonly<Record<Span, number>> = { minute: 180, hour: 960, day: 400, month: 14 };

const READ = loadScript(new URL('./usage.lua', import.meta.url), 'read-counts');
/** Maximum windows read per call. Redis serves no other client during a script, so each call must be short. */
const WINDOWS_AT_ONCE = 64;
const TENANT_FIELD = '*';

/**
 * Reads the usage of tenants and their functions. The scripts that store usage count it in the same step (`usage.lua`): an attempt reports its usage so
 * far, and a script counts the difference to the last report, so repeated, lost and late reports count once. A span has at most 2,048 fields: the tenant's,
 * and one for each function; further functions count together as `-`, and against the limits of the tenant only. Children are invocations, but not
 * requests. A refused create that reaches Redis twice counts two refusals; nothing else counts twice.
 */
export class UsageCounters {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * The spans from the one that contains `from` to the one that contains `to`, oldest first. Empty and expired spans are left out.
   *
   * @param scope every function of the tenant, or the tenant as a whole.
   */
  async spans(
    tenant: string,
    span: Span,
    from: number,
    to: number,
    scope: 'functions' | 'tenant',
  ): Promise<SpanCounts[]> {
    const found: SpanCounts[] = [];
    for await (const [at, window] of this.#windows(tenant, span, from, to, scope === 'tenant' ? TENANT_FIELD : '')) {
      for (const [field, value] of window) {
        if (!Array.isArray(value) || (field === TENANT_FIELD) !== (scope === 'tenant')) continue;
        found.push({ at, function: scope === 'tenant' ? null : field, counts: toCounts(value) });
      }
    }
    return found.sort((a, b) => a.at - b.at || ((a.function ?? '') < (b.function ?? '') ? -1 : 1));
  }

  /** The last `minutes`, including the current one, oldest first; empty minutes are left out. */
  async minutes(tenant: string, minutes: number): Promise<MinuteCounts[]> {
    const now = this.#store.clock();
    const found: MinuteCounts[] = [];
    for await (const [at, window] of this.#windows(tenant, 'minute', now - (minutes - 1) * 60_000, now, '')) {
      if (window.length > 0) found.push(toMinute(at, window));
    }
    return found;
  }

  /**
   * Yields each window (the counts of one span; empty without counts) from the one that contains `from` to the one that contains `to`.
   *
   * @param field the field to read of each window; '' for all fields
   */
  async *#windows(
    tenant: string,
    span: Span,
    from: number,
    to: number,
    field: string,
  ): AsyncGenerator<[at: number, window: [field: string, value: unknown][]]> {
    const account = this.#store.keys.account(tenant);
    const last = Math.min(spanNumber(span, to), spanNumber(span, this.#store.clock()));
    const first = Math.max(spanNumber(span, from), spanNumber(span, this.#store.clock()) - KEPT_SPANS[span] + 1);
    for (let start = first; start <= last; ) {
      const numbers = Array.from({ length: Math.min(WINDOWS_AT_ONCE, last - start + 1) }, (_, i) => start + i);
      const args = [account, field, ...numbers.flatMap((number) => [span, number])];
      const reply = await this.#store.script(READ, [`${account}:usage:latest`], args);
      if (!Array.isArray(reply) || reply.length === 0)
        throw new StoreError('store-corrupt', 'read-counts answered no list.');
      for (const [i, window] of reply.entries()) yield [spanStart(span, start + i), pairs(window)];
      // The reply has fewer windows than the call asked for when many functions were counted in them.
      start += reply.length;
    }
  }
}

function pairs(flat: unknown): [string, unknown][] {
  if (!Array.isArray(flat)) return [];
  return flat.flatMap((field, i): [string, unknown][] => (i % 2 === 0 ? [[String(field), flat[i + 1]]] : []));
}

function toMinute(at: number, window: readonly [string, unknown][]): MinuteCounts {
  const times = new Map<number, number>();
  const failures = new Map<string, number>();
  const rejections = new Map<string, number>();
  let counts = toCounts([]);
  for (const [field, value] of window) {
    // The text behind the prefix `f:`, `r:` or `t:` of a field with one number; see `usage.lua`.
    const name = field.slice(2);
    if (field === TENANT_FIELD && Array.isArray(value)) counts = toCounts(value);
    else if (field.startsWith('t:')) times.set(Number(name), Number(value));
    else if (field.startsWith('f:')) failures.set(name, Number(value));
    else if (field.startsWith('r:') && isQuotaName(name)) {
      const code = quotaErrorCode(name);
      rejections.set(code, (rejections.get(code) ?? 0) + Number(value));
    }
  }
  return {
    at,
    counts,
    ...firstMessages(times),
    failures: Object.fromEntries(failures),
    rejections: Object.fromEntries(rejections),
  };
}

function firstMessages(times: FirstMessageTimes): Pick<MinuteCounts, 'firstMessages' | 'firstMessageMs'> {
  const [p50, p95] = [quantile(times, 0.5), quantile(times, 0.95)];
  return {
    firstMessages: [...times.values()].reduce((sum, count) => sum + count, 0),
    firstMessageMs: p50 === null || p95 === null ? null : { p50, p95 },
  };
}
