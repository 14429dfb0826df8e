import { StoreError } from '../store/errors.ts';
import { resetOf } from './limits.ts';
import { isQuotaName, type QuotaName } from './names.ts';

/** A limit and how much of it is used. */
export interface QuotaUse {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly used: number;
  /** When the window ends, ms since the epoch; null for what is held. */
  readonly resetsAt: number | null;
}

/** A counted quota that a running invocation has passed. */
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
  /** When it was read, ms since the epoch by the clock of Redis: of two limits the one that was read later counts. */
  readonly readAt: number;
}

/** What a call that reports usage answers. */
export interface Metered<Outcome> {
  readonly outcome: Outcome;
  /** The invocation is to be ended with that quota's failure code. */
  readonly exceeded: ExceededQuota | null;
  /** The least that the windows of the token quotas have left; null without one. */
  readonly tokensLeft: number | null;
  /** When the window ends that has them, milliseconds since the epoch: from then on as many as its limit allows are left. */
  readonly tokensUntil: number | null;
  /** The tenant's limit as it is now; null when the call was not metered. */
  readonly kvPages: PageLimit | null;
}

/** What takes the bytes of a quota, and what to do about it. */
const KEPT: Readonly<Partial<Record<QuotaName, string>>> = {
  'storage-bytes': "the tenant's stored values, files and components. Delete what is not needed.",
  'redis-bytes':
    "the tenant's waiting inputs, events, logs, messages, stored values, files and components. Let what runs end, delete stored values and versions " +
    'that are not needed, or wait until events and files of ended invocations are forgotten.',
  'disk-bytes': "the compiled versions of the tenant's functions. Remove versions that are not needed.",
};

/** What is held may have room again soon; nobody can say when. */
const HELD_RETRY_MS = 1000;

/** A quota has no room: nothing was stored. */
export class QuotaExceeded extends StoreError {
  readonly use: QuotaUse;
  /** After so long the same is taken, as far as this quota goes; null when waiting does not help. */
  readonly retryAfterMs: number | null;
  /** Every counted quota that binds, this one included. */
  readonly counted: readonly QuotaUse[];

  constructor(use: QuotaUse, now: number, counted: readonly QuotaUse[] = []) {
    const whose = use.function === null ? '' : ` of the function ${use.function}`;
    const what = KEPT[use.quota];
    const said =
      what === undefined
        ? `The quota ${use.quota}${whose} is used up: ${shown(use.used)} of ${use.limit}.`
        : `The quota ${use.quota} has no room for this: ${use.used} of ${use.limit} bytes are used by ${what}`;
    super('quota-exceeded', said);
    this.use = use;
    this.counted = counted;
    this.retryAfterMs =
      use.limit === 0 || use.quota === 'storage-bytes' || use.quota === 'disk-bytes'
        ? null
        : use.resetsAt === null
          ? HELD_RETRY_MS
          : Math.max(1, use.resetsAt - now);
  }

  /** The tenant may keep no more bytes: quota, limit and use as a script answers them. */
  static ofBytes(quota: unknown, limit: unknown, used: unknown, now: number): QuotaExceeded {
    const [use] = parseUses([String(quota), '', limit, used], now);
    if (use === undefined) throw new StoreError('store-corrupt', 'A script answered no quota.');
    return new QuotaExceeded(use, now);
  }

  get quota(): QuotaName {
    return this.use.quota;
  }
}

function shown(used: number): string {
  return String(Math.round(used * 1000) / 1000);
}

/** Quotas as scripts answer them: name, function or '', limit, used, one after the other. */
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

/** The answer of a script that was given usage: `[1, quota or '', function or '', limit, tokens left or '', their window or '', KV pages or '', read at]`. */
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

/** A tenant's limit of pages as scripts answer it. */
export function pageLimitOf(pages: unknown, readAt: unknown): PageLimit {
  return { pages: optionalNumber(pages), readAt: Number(readAt) };
}

/** When a window of tokens ends that a script has named; null when it has named none. */
export function endOfTokens(window: unknown, now: number): number | null {
  const quota = `tokens-per-${String(window)}`;
  return isQuotaName(quota) ? resetOf(quota, now) : null;
}

/** A number that a script may leave out by ''. */
export function optionalNumber(value: unknown): number | null {
  return value === '' || value == null ? null : Number(value);
}
