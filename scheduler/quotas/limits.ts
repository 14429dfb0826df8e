import { countedPart, isQuotaName, maybeOfFunction, QUOTA_NAMES, type QuotaName } from './names.ts';
import { windowEnd } from './windows.ts';

/** The largest limit: what a structured field of HTTP can carry (RFC 9651, 3.3.1). */
export const MAX_LIMIT = 999_999_999_999_999;
/** An override lasts at most so long; what is meant for good is a setting. */
export const MAX_OVERRIDE_MS = 366 * 86_400_000;
export const MAX_REASON_LENGTH = 200;
/** Settings of one tenant, those of its functions included. */
export const MAX_SETTINGS = 1000;

/** Where a limit comes from: the platform, what is set for the tenant or its function, or for a time instead of that. */
export type LimitSource = 'default' | 'tenant' | 'override';

/** What is set for a tenant or one of its functions. */
export interface Setting {
  /** For good; null for none. */
  readonly limit: number | null;
  /** Instead of it, until then (ms since the epoch). */
  readonly override: { readonly limit: number; readonly until: number } | null;
}

/** A limit that binds now. */
export interface ResolvedLimit {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly source: LimitSource;
  /** When the override ends, ms since the epoch. */
  readonly until: number | null;
}

/** Limits of every tenant for which nothing else is set. */
export type DefaultLimits = Readonly<Partial<Record<QuotaName, number>>>;

/** A change of one setting; see `QuotaChange` of the gateway. */
export interface LimitChange {
  readonly quota: QuotaName;
  readonly function: string | null;
  /** Null takes setting and override away. */
  readonly limit: number | null;
  /** Makes it an override until then, ms since the epoch. */
  readonly until: number | null;
}

/** Field of a setting in the tenant's hash, which the scripts read. */
export function settingField(quota: QuotaName, fn: string | null): string {
  return fn === null ? quota : `${quota}:${fn}`;
}

/** The value of that field: `<limit>`, or `<limit, or - for none> <limit for a time> <until>`. */
export function parseSetting(text: string | null | undefined): Setting {
  const [limit = '-', override, until] = (text ?? '-').split(' ');
  return {
    limit: limit === '-' ? null : Number(limit),
    override: override === undefined ? null : { limit: Number(override), until: Number(until) },
  };
}

/**
 * The limit that binds: an override that has not ended, else what is set, else (for a tenant as a whole) the platform's default; null when
 * nothing binds.
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
  const usual = fn === null ? defaults[quota] : undefined;
  return usual === undefined ? null : { quota, function: fn, limit: usual, source: 'default', until: null };
}

/** The functions of a tenant for which anything is set, by name. */
export function functionsOf(settings: Readonly<Record<string, string>>): string[] {
  const names = Object.keys(settings).flatMap((field) => field.split(':').slice(1));
  return [...new Set(names)].sort();
}

/** Every limit of a tenant in the order of their names; those of these functions after each of the tenant's. */
export function resolveAll(
  settings: Readonly<Record<string, string>>,
  defaults: DefaultLimits,
  functions: readonly string[],
  now: number,
): ResolvedLimit[] {
  const holders = [null, ...functions];
  return QUOTA_NAMES.flatMap((quota) =>
    holders.map((holder) => resolve(quota, holder, parseSetting(settings[settingField(quota, holder)]), defaults, now)),
  ).filter((limit) => limit !== null);
}

/** Why a change cannot be made, and the member that is at fault; null when it can. */
export function changeFault(
  change: { readonly quota: string; readonly function: string | null; limit: number | null; until: number | null },
  now: number,
): { readonly field: string; readonly message: string } | null {
  const { quota, function: fn, limit, until } = change;
  if (!isQuotaName(quota)) return { field: '/quota', message: `There is no quota "${quota}".` };
  if (fn !== null && !maybeOfFunction(quota)) {
    return { field: '/function', message: `The quota ${quota} is of the tenant as a whole, not of a function.` };
  }
  if (limit !== null && !(Number.isSafeInteger(limit) && limit >= 0 && limit <= MAX_LIMIT)) {
    return { field: '/limit', message: `A limit is a whole number from 0 to ${MAX_LIMIT}.` };
  }
  if (until === null) return null;
  if (limit === null) return { field: '/limit', message: 'An override needs a limit.' };
  if (!Number.isFinite(until) || until <= now) {
    return { field: '/expiresAt', message: 'The override would have ended already.' };
  }
  return until - now > MAX_OVERRIDE_MS
    ? { field: '/expiresAt', message: `An override lasts at most ${MAX_OVERRIDE_MS / 86_400_000} days.` }
    : null;
}

/** When the window of a quota that counts ends, ms since the epoch; null for what is held. */
export function resetOf(quota: QuotaName, now: number): number | null {
  const part = countedPart(quota);
  return part === null ? null : windowEnd(part.window, now);
}
