import { StoreError } from '../store/errors.ts';
import { resetOf } from './limits.ts';
import { isQuotaName, type QuotaName } from './names.ts';

/**
 * A limit and its use. A counted quota limits an amount per minute, day or month (its window); a held quota limits what exists at once, such as open
 * invocations or bytes.
 */
export interface QuotaUse {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly used: number;
  /** End of the window, ms since the epoch; null for a held quota. */
  readonly resetsAt: number | null;
}

/** A counted quota that a running invocation has exceeded. */
export interface ExceededQuota {
  readonly quota: QuotaName;
  readonly limit: number;
  /** Milliseconds since the epoch. */
  readonly resetsAt: number;
  readonly scope: 'tenant' | 'function';
}

/** KV pages that a tenant may hold at once on a GPU host. */
export interface PageLimit {
  /** Null for no limit. */
  readonly pages: number | null;
  /** Time at which the limit was read, ms since the epoch by the clock of Redis. Of two limits, the one that was read later applies. */
  readonly readAt: number;
}

/** A token quota that has no room for the tokens that an attempt needs. */
export interface ShortQuota extends ExceededQuota {
  /** False when other attempts may return enough tokens of their grants. */
  readonly isHopeless: boolean;
}

/** The tokens that an attempt may charge. */
export interface TokenGrant {
  /** Maximum tokens that the quotas count of the attempt, from its beginning on; null without a token quota. */
  readonly ceiling: number | null;
  /** The quota without room for the tokens that the attempt asked for; null when there is room, or the attempt did not ask. */
  readonly short: ShortQuota | null;
}

/** The reply to a call that reports usage. */
export interface Metered<Outcome> {
  readonly outcome: Outcome;
  /** The exceeded quota; null for none. The invocation must end with the error code of this quota. */
  readonly exceeded: ExceededQuota | null;
  /** Null when the call was not metered. */
  readonly tokens: TokenGrant | null;
  /** The tenant's present page limit; null when the call was not metered. */
  readonly kvPages: PageLimit | null;
}

/** For each quota of bytes: the content that counts, and how the tenant can free bytes. */
const CONTENT_TEXTS: Readonly<Partial<Record<QuotaName, string>>> = {
  'storage-bytes':
    "the tenant's stored values, files, indexes and components. " +
    'Delete what is not needed, or wait until files of ended invocations are forgotten.',
  'redis-bytes':
    "the tenant's waiting inputs, events, logs, messages, stored values, files and components. " +
    'Let what runs end, delete stored values and versions that are not needed, ' +
    'or wait until events and files of ended invocations are forgotten.',
  'disk-bytes': "the compiled versions of the tenant's functions. Remove versions that are not needed.",
};

/**
 * Quotas on things that mostly stay until they are removed, so that a repeated request is refused again. `storage-bytes` become free without a
 * removal when files of ended invocations (`[retention] files`) and values with an expiry expire, but only after hours or days.
 */
const MOSTLY_KEPT: readonly QuotaName[] = ['storage-bytes', 'disk-bytes', 'schedules'];

/** Time after which a client should try again when a held quota is full: the amount becomes free at an unknown time, perhaps soon. */
const HELD_RETRY_MS = 1000;

/** The error of a request that a quota has no room for. The request has stored nothing. */
export class QuotaExceeded extends StoreError {
  readonly use: QuotaUse;
  /**
   * Time after which this quota may admit the same request: up to the end of a counted quota's window, or a guess for a held quota. Null when a
   * client should not try again by itself, because the limit is 0 or the amount seldom becomes free without a removal.
   */
  readonly retryAfterMs: number | null;
  /**
   * All counted quotas that limit the refused request, including this one if it is a counted quota. Empty unless the request submitted an invocation.
   */
  readonly counted: readonly QuotaUse[];

  constructor(use: QuotaUse, now: number, counted: readonly QuotaUse[] = []) {
    const functionText = use.function === null ? '' : ` of the function ${use.function}`;
    const keptContent = CONTENT_TEXTS[use.quota];
    const message =
      keptContent === undefined
        ? `The quota ${use.quota}${functionText} is used up: ${roundedText(use.used)} of ${use.limit}.`
        : `The quota ${use.quota} has no room for this: ${use.used} of ${use.limit} bytes are used by ${keptContent}`;
    super('quota-exceeded', message);
    this.use = use;
    this.counted = counted;
    this.retryAfterMs = retryAfterMs(use, now);
  }

  /** The error for a full quota of bytes, from the quota, limit and use in a script's reply. */
  static ofBytes(quota: unknown, limit: unknown, used: unknown, now: number): QuotaExceeded {
    const [use] = parseUses([String(quota), '', limit, used], now);
    if (use === undefined) throw new StoreError('store-corrupt', 'A script answered no quota.');
    return new QuotaExceeded(use, now);
  }

  get quota(): QuotaName {
    return this.use.quota;
  }
}

function retryAfterMs({ quota, limit, resetsAt }: QuotaUse, now: number): number | null {
  if (limit === 0 || MOSTLY_KEPT.includes(quota)) return null;
  return resetsAt === null ? HELD_RETRY_MS : Math.max(1, resetsAt - now);
}

function roundedText(used: number): string {
  return String(Math.round(used * 1000) / 1000);
}

/** Parses quotas from a script's reply: a flat list with name, function or '', limit and use of each quota. */
export function parseUses(values: readonly unknown[], now: number): QuotaUse[] {
  const VALUES_PER_QUOTA = 4;
  const uses: QuotaUse[] = [];
  for (let i = 0; i + VALUES_PER_QUOTA <= values.length; i += VALUES_PER_QUOTA) {
    const [quota, fn, limit, used] = values.slice(i, i + VALUES_PER_QUOTA);
    if (!isQuotaName(quota)) throw new StoreError('store-corrupt', `A script answered the quota ${String(quota)}.`);
    uses.push({
      quota,
      function: fn === '' ? null : String(fn),
      limit: Number(limit),
      used: Number(used),
      resetsAt: resetOf(quota, now),
    });
  }
  return uses;
}

/** Parses the part of a metering reply that `quotaReply` in limits.lua makes; '' stands for a missing value. */
export function parseMetered(values: readonly unknown[], now: number): Omit<Metered<unknown>, 'outcome'> {
  const [quota, fn, limit, kvPages, readAt, ceiling, shortQuota, shortFunction, shortLimit, isHopeless] = values;
  const short = countedQuotaOf(shortQuota, shortFunction, shortLimit, now);
  return {
    exceeded: countedQuotaOf(quota, fn, limit, now),
    tokens: { ceiling: optionalNumber(ceiling), short: short && { ...short, isHopeless: isHopeless === 1 } },
    kvPages: pageLimitOf(kvPages, readAt),
  };
}

/** A counted quota from its name, function and limit in a script's reply; null when the reply names none. */
function countedQuotaOf(quota: unknown, fn: unknown, limit: unknown, now: number): ExceededQuota | null {
  const resetsAt = isQuotaName(quota) ? resetOf(quota, now) : null;
  if (!isQuotaName(quota) || resetsAt === null) return null;
  return { quota, limit: Number(limit), resetsAt, scope: fn === '' ? 'tenant' : 'function' };
}

/** Parses a tenant's page limit from a script's reply. */
export function pageLimitOf(pages: unknown, readAt: unknown): PageLimit {
  return { pages: optionalNumber(pages), readAt: Number(readAt) };
}

/** Parses a number from a script, which returns '' when there is none. */
export function optionalNumber(value: unknown): number | null {
  return value === '' || value == null ? null : Number(value);
}

/** Throws `QuotaExceeded` when a script's reply is `[-4, quota, limit, used]`, which means that the tenant may keep no more bytes. */
export function throwBytesQuota(reply: unknown, now: number): void {
  if (!Array.isArray(reply)) return;
  const [code, quota, limit, used] = reply as unknown[];
  if (code === -4) throw QuotaExceeded.ofBytes(quota, limit, used, now);
}
