import { StoreError } from '../store/errors.ts';
import { resetOf } from './limits.ts';
import { isQuotaName, type QuotaName } from './names.ts';

/** A limit and its use. */
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
  /** Time at which the limit was read, ms since the epoch by the clock of Redis. Of two limits, the one read later applies. */
  readonly readAt: number;
}

/** The reply to a call that reports usage. */
export interface Metered<Outcome> {
  readonly outcome: Outcome;
  /** The exceeded quota; null for none. The invocation must end with the error code of this quota. */
  readonly exceeded: ExceededQuota | null;
  /** The fewest tokens left in any window of the token quotas; null without a token quota. */
  readonly tokensLeft: number | null;
  /** End of that window, milliseconds since the epoch. From then on the window's whole limit is available again. */
  readonly tokensUntil: number | null;
  /** The tenant's present page limit; null when the call was not metered. */
  readonly kvPages: PageLimit | null;
}

/** For each quota of bytes: the content that counts, and the tenant's ways to free some. */
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
 * Quotas on things that mostly stay until they are removed, so that a repeated request is refused again. Files of ended invocations and values with
 * an expiry do free `storage-bytes`, but only after hours or days (`[retention] files`).
 */
const MOSTLY_KEPT: readonly QuotaName[] = ['storage-bytes', 'disk-bytes', 'schedules'];

/** Held amounts may be released soon, at an unknown time. */
const HELD_RETRY_MS = 1000;

/** A quota has no room; nothing was stored. */
export class QuotaExceeded extends StoreError {
  readonly use: QuotaUse;
  /**
   * Time after which this quota may admit the same request: the end of a counted quota's window, a guess for a held quota. Null when a
   * client should not try again by itself: the limit is 0, or what the quota bounds seldom goes away by itself.
   */
  readonly retryAfterMs: number | null;
  /**
   * Every counted quota that limits the refused request, this one included if it is counted. Empty unless the request was a submission of an
   * invocation.
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
    this.retryAfterMs =
      use.limit === 0 || MOSTLY_KEPT.includes(use.quota)
        ? null
        : use.resetsAt === null
          ? HELD_RETRY_MS
          : Math.max(1, use.resetsAt - now);
  }

  /** Error for a full quota of bytes, from the quota, limit and use in a script's reply. */
  static ofBytes(quota: unknown, limit: unknown, used: unknown, now: number): QuotaExceeded {
    const [use] = parseUses([String(quota), '', limit, used], now);
    if (use === undefined) throw new StoreError('store-corrupt', 'A script answered no quota.');
    return new QuotaExceeded(use, now);
  }

  get quota(): QuotaName {
    return this.use.quota;
  }
}

function roundedText(used: number): string {
  return String(Math.round(used * 1000) / 1000);
}

/** Parses quotas from a script's reply: name, function or '', limit, used, in a flat list. */
export function parseUses(values: readonly unknown[], now: number): QuotaUse[] {
  const uses: QuotaUse[] = [];
  for (let i = 0; i + 3 < values.length; i += 4) {
    const [quota, fn, limit, used] = values.slice(i, i + 4);
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

/**
 * Parses a metering reply after its first value, as `quotaReply` of exceeded.lua makes it: exceeded quota, its
 * function, its limit, tokens left, their window, KV pages (each '' for none), and the time at which the page limit was
 * read.
 */
export function parseMetered(values: readonly unknown[], now: number): Omit<Metered<unknown>, 'outcome'> {
  const [quota, fn, limit, tokensLeft, window, kvPages, readAt] = values;
  const resetsAt = isQuotaName(quota) ? resetOf(quota, now) : null;
  return {
    exceeded:
      isQuotaName(quota) && resetsAt !== null
        ? { quota, limit: Number(limit), resetsAt, scope: fn === '' ? 'tenant' : 'function' }
        : null,
    tokensLeft: optionalNumber(tokensLeft),
    tokensUntil: endOfTokens(window, now),
    kvPages: pageLimitOf(kvPages, readAt),
  };
}

/** Parses a tenant's page limit from a script's reply. */
export function pageLimitOf(pages: unknown, readAt: unknown): PageLimit {
  return { pages: optionalNumber(pages), readAt: Number(readAt) };
}

/** End of the token window that a script named; null when it named none. */
export function endOfTokens(window: unknown, now: number): number | null {
  const quota = `tokens-per-${String(window)}`;
  return isQuotaName(quota) ? resetOf(quota, now) : null;
}

/** Parses a number that scripts leave out as ''. */
export function optionalNumber(value: unknown): number | null {
  return value === '' || value == null ? null : Number(value);
}

/** Throws for a reply `[-4, quota, limit, used]`: the tenant may keep no more bytes. */
export function throwBytesQuota(reply: unknown, now: number): void {
  if (Array.isArray(reply) && reply[0] === -4) throw QuotaExceeded.ofBytes(reply[1], reply[2], reply[3], now);
}
