import { countedPart, isQuotaName, mayBeSetForFunction, QUOTA_NAMES, type QuotaName, windowEnd } from './names.ts';

/** The largest limit: the largest integer in a structured field of HTTP (RFC 9651, 3.3.1). */
export const MAX_LIMIT = 999_999_999_999_999;
const DAY_MS = 86_400_000;
/** Longest duration of an override (a temporary limit). */
const MAX_OVERRIDE_MS = 366 * DAY_MS;
/** Maximum characters of the reason of a change. */
export const MAX_REASON_LENGTH = 200;
/** Maximum settings of one tenant, including its functions' settings. */
export const MAX_SETTINGS = 1000;

/** Origin of a limit: the platform's default, a setting of the tenant or its function, or an override of that setting. */
export const LIMIT_SOURCES = ['default', 'tenant', 'override'] as const;
export type LimitSource = (typeof LIMIT_SOURCES)[number];

/** The limits that are set for a quota of a tenant or of one of its functions. */
interface Setting {
  /** Permanent limit; null for none. */
  readonly limit: number | null;
  /** Limit that replaces the permanent one until `until` (ms since the epoch). */
  readonly override: { readonly limit: number; readonly until: number } | null;
}

/** A limit that applies now. */
export interface ResolvedLimit {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly source: LimitSource;
  /** End of the override, ms since the epoch; null for a permanent limit. */
  readonly until: number | null;
}

/** The platform's limits for a tenant that has no setting of its own for a quota. */
export type DefaultLimits = Readonly<Partial<Record<QuotaName, number>>>;

/** A change of one setting; see `QuotaChange` of the gateway. */
export interface LimitChange {
  readonly quota: QuotaName;
  readonly function: string | null;
  /** Null removes setting and override. */
  readonly limit: number | null;
  /** End of the override, ms since the epoch; null for a permanent limit. */
  readonly until: number | null;
}

/** Field of a setting in the tenant's hash, which the scripts read. */
export function settingField(quota: QuotaName, fn: string | null): string {
  return fn === null ? quota : `${quota}:${fn}`;
}

/** Parses the value of a setting's field: `<limit>`, or `<limit> <override> <until>`, where `-` stands for no limit. */
export function parseSetting(text: string | null | undefined): Setting {
  const [limit = '-', override, until] = (text ?? '-').split(' ');
  return {
    limit: limit === '-' ? null : Number(limit),
    override: override === undefined ? null : { limit: Number(override), until: Number(until) },
  };
}

/**
 * The limit that applies: an override that has not ended, else the permanent limit, else, for a tenant as a whole, the platform's default. Null when
 * there is none of these.
 */
export function resolve(
  quota: QuotaName,
  fn: string | null,
  setting: Setting,
  defaults: DefaultLimits,
  now: number,
): ResolvedLimit | null {
  const { limit, override } = setting;
  if (override !== null && override.until > now) {
    return { quota, function: fn, limit: override.limit, source: 'override', until: override.until };
  }
  if (limit !== null) return { quota, function: fn, limit, source: 'tenant', until: null };
  const defaultLimit = fn === null ? defaults[quota] : undefined;
  return defaultLimit === undefined
    ? null
    : { quota, function: fn, limit: defaultLimit, source: 'default', until: null };
}

/** Names of the tenant's functions that have a setting, sorted. */
export function functionsOf(settings: Readonly<Record<string, string>>): string[] {
  const names = Object.keys(settings).flatMap((field) => field.split(':').slice(1));
  return [...new Set(names)].sort();
}

/** Every limit of a tenant in the order of `QUOTA_NAMES`. For each quota, the tenant's limit precedes those of `functions`. */
export function resolveAll(
  settings: Readonly<Record<string, string>>,
  defaults: DefaultLimits,
  functions: readonly string[],
  now: number,
): ResolvedLimit[] {
  const holders = [null, ...functions];
  return QUOTA_NAMES.flatMap((quota) =>
    holders.map((holder) => {
      const setting = parseSetting(settings[settingField(quota, holder)]);
      return resolve(quota, holder, setting, defaults, now);
    }),
  ).filter((limit) => limit !== null);
}

/** Checks a change. Returns the field at fault and the reason for the refusal, or null when the change is allowed. */
export function changeFault(
  change: Omit<LimitChange, 'quota'> & { readonly quota: string },
  now: number,
): { readonly field: string; readonly message: string } | null {
  const { quota, function: fn, limit, until } = change;
  if (!isQuotaName(quota)) return { field: '/quota', message: `There is no quota "${quota}".` };
  if (fn !== null && !mayBeSetForFunction(quota)) {
    return { field: '/function', message: `The quota ${quota} is of the tenant as a whole, not of a function.` };
  }
  if (limit !== null && !(Number.isSafeInteger(limit) && limit >= 0 && limit <= MAX_LIMIT)) {
    return { field: '/limit', message: `A limit is a whole number from 0 to ${MAX_LIMIT}.` };
  }
  if (until === null) return null;
  if (limit === null)
    return {
      field: '/limit',
      message: 'An override needs a limit: only a permanent setting can be null, which restores the default.',
    };
  if (!Number.isFinite(until) || until <= now) {
    return { field: '/expiresAt', message: 'The override would have ended already: it needs a time in the future.' };
  }
  return until - now > MAX_OVERRIDE_MS
    ? { field: '/expiresAt', message: `An override lasts at most ${MAX_OVERRIDE_MS / DAY_MS} days.` }
    : null;
}

/** End of the present window of a counted quota, ms since the epoch; null for a held quota, which has no window. */
export function resetOf(quota: QuotaName, now: number): number | null {
  const part = countedPart(quota);
  return part === null ? null : windowEnd(part.window, now);
}

const MIB = 2 ** 20;
/** Upper bound of a tenant's half of a small Redis. It leaves room beside the bundled functions, whose components take about 100 MiB. */
const SMALL_BYTES = 256 * MIB;
const LEAST_DISK_BYTES = 1024 * MIB;

/**
 * Default limit of a tenant's bytes in Redis: a quarter of Redis's memory, so that no tenant alone fills Redis for the others. If Redis has up to
 * 1 GiB, the limit is half of its memory, at most 256 MiB.
 */
export function redisShareBytes(redisBytes: number): number {
  return Math.floor(Math.max(redisBytes / 4, Math.min(redisBytes / 2, SMALL_BYTES)));
}

/** Default limit of a tenant's compiled versions on disk: an eighth of the disk that holds them, and 1 GiB at least. */
export function diskShareBytes(diskBytes: number): number {
  return Math.floor(Math.max(diskBytes / 8, LEAST_DISK_BYTES));
}
