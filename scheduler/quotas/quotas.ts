import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { toCounts, type UsageCounts } from '../usage/metered.ts';
import type { QuotaUse } from './exceeded.ts';
import {
  changeFault,
  type DefaultLimits,
  functionsOf,
  type LimitChange,
  type LimitSource,
  MAX_SETTINGS,
  parseSetting,
  type ResolvedLimit,
  resetOf,
  resolve,
  resolveAll,
  settingField,
} from './limits.ts';
import {
  countedPart,
  countedUse,
  type HeldQuota,
  isQuotaName,
  QUOTA_WINDOWS,
  type QuotaName,
  spanNumber,
} from './names.ts';

/** A limit, its use, and where the limit comes from. */
export interface QuotaState extends QuotaUse {
  readonly source: LimitSource;
  /** The author, end and reason of an override. */
  readonly override: { readonly author: string; readonly until: number; readonly reason: string } | null;
}

/** Author and reason of a change. */
interface ChangeNote {
  readonly author: string;
  readonly reason: string;
}

/** `full`: the tenant has as many settings as it is allowed. */
type SetOutcome = 'ok' | 'full';

const SCRIPTS = {
  set: loadScript(new URL('./limits.lua', import.meta.url), 'set-quota'),
  setDefaults: loadScript(new URL('./limits.lua', import.meta.url), 'set-defaults'),
  use: loadScript(new URL('./account.lua', import.meta.url), 'read-use'),
  repairAccounts: loadScript(new URL('./account.lua', import.meta.url), 'repair-accounts'),
  counts: loadScript(new URL('../usage/usage.lua', import.meta.url), 'read-counts'),
};

/** Minimum time between two repairs. Each repair checks at most eight tenants, so the accounts of a thousand tenants take ten minutes or more. */
const ACCOUNT_REPAIR_INTERVAL_MS = 5000;

/** Tenant name under which the platform's defaults are stored. */
const EVERY_TENANT = '*';
/** Field that marks a tenant's settings when they include a counted limit. Without the mark, scripts do not look up counted limits. */
const COUNTED_MARK = '#counted';

/** Stands for the whole tenant where the usage counters otherwise name a function. */
const WHOLE = '*';

/** Use of a tenant or a function: usage counts, one for each window of `QUOTA_WINDOWS`, and the amounts that it holds now. */
interface Used {
  readonly windows: readonly UsageCounts[];
  readonly held: Readonly<Record<HeldQuota, number>>;
}

/** Limits of tenants and their functions: settings in Redis, read here and by the scripts that enforce them. */
export class Quotas {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Replaces the default limits of all tenants. */
  async setDefaults(defaults: DefaultLimits): Promise<void> {
    const entries = Object.entries(defaults).filter(([quota, limit]) => isQuotaName(quota) && limit !== undefined);
    const hasCounted = entries.some(([quota]) => countedPart(quota as QuotaName) !== null);
    const args = [...entries.flat(), ...(hasCounted ? [COUNTED_MARK, 1] : [])];
    await this.#store.script(SCRIPTS.setDefaults, [this.#settingsKey(EVERY_TENANT)], args);
  }

  /** The limit that binds a tenant (or one of its functions) now; null when none does. */
  async limit(tenant: string, quota: QuotaName, fn: string | null = null): Promise<number | null> {
    const [setting, defaultLimit] = await this.#store.call((redis) =>
      Promise.all([
        redis.hget(this.#settingsKey(tenant), settingField(quota, fn)),
        redis.hget(this.#settingsKey(EVERY_TENANT), quota),
      ]),
    );
    const defaults: DefaultLimits = defaultLimit === null ? {} : { [quota]: Number(defaultLimit) };
    return resolve(quota, fn, parseSetting(setting), defaults, this.#store.clock())?.limit ?? null;
  }

  /** Every limit that binds a tenant, with its use; with `fn`, the limits of that function too. */
  status(tenant: string, fn: string | null = null): Promise<QuotaState[]> {
    return this.#states(tenant, () => (fn === null ? [] : [fn]));
  }

  /** Every limit that binds a tenant or any of its functions, with its use. */
  statusOfAll(tenant: string): Promise<QuotaState[]> {
    return this.#states(tenant, functionsOf);
  }

  async #states(
    tenant: string,
    chooseFunctions: (settings: Readonly<Record<string, string>>) => readonly string[],
  ): Promise<QuotaState[]> {
    const now = this.#store.clock();
    const [settings, defaultFields, notes] = await this.#store.call((redis) =>
      Promise.all([
        redis.hgetall(this.#settingsKey(tenant)),
        redis.hgetall(this.#settingsKey(EVERY_TENANT)),
        redis.hgetall(this.#notesKey(tenant)),
      ]),
    );
    const functions = chooseFunctions(settings);
    const limits = resolveAll(settings, defaultsOf(defaultFields), functions, now);
    const holders = [null, ...functions];
    const usedByFunction = new Map(
      await Promise.all(holders.map(async (fn) => [fn, await this.#readUse(tenant, fn, now)] as const)),
    );
    const concurrencyLimit = limits.find(
      ({ quota, function: fn }) => quota === 'concurrent-invocations' && fn === null,
    );
    return limits.map((limit) => {
      const { quota, function: fn, source, until } = limit;
      const functionUse = usedByFunction.get(fn);
      const note = parseNote(notes[settingField(quota, fn)]);
      return {
        quota,
        function: fn,
        limit: limit.limit,
        resetsAt: resetOf(quota, now),
        source,
        used: functionUse === undefined ? 0 : usedOf(limit, functionUse, concurrencyLimit?.limit ?? null),
        override: until === null ? null : { ...note, until },
      };
    });
  }

  /**
   * Sets a permanent limit and removes an override, or sets an override beside the permanent limit, or removes both.
   *
   * @throws StoreError `invalid-argument` for a fault that `changeFault` finds.
   */
  async set(tenant: string, change: LimitChange, note: ChangeNote): Promise<SetOutcome> {
    const fault = changeFault(change, this.#store.clock());
    if (fault !== null) throw new StoreError('invalid-argument', fault.message);
    const { quota, function: fn, limit, until } = change;
    const reply = await this.#store.script(
      SCRIPTS.set,
      [this.#settingsKey(tenant), this.#notesKey(tenant)],
      [
        settingField(quota, fn),
        // Permanent limit, override, end of the override.
        ...(until === null ? [limit ?? '', '', ''] : ['', limit ?? '', until]),
        JSON.stringify(note),
        MAX_SETTINGS,
      ],
    );
    return reply === 1 ? 'ok' : 'full';
  }

  /**
   * Compares the accounts of some tenants with the stored values, and continues with the next tenants at the next call. Any number of
   * processes may call it. Returns the number of corrected accounts, or null when the last repair was less than `intervalMs` ago.
   */
  async repairAccounts(intervalMs = ACCOUNT_REPAIR_INTERVAL_MS): Promise<number | null> {
    const { keys, clock } = this.#store;
    const args = [keys.prefix, clock(), intervalMs];
    const correctedCount = await this.#store.script(SCRIPTS.repairAccounts, [keys.accountRepairs, keys.tenants], args);
    return correctedCount === -1 ? null : Number(correctedCount);
  }

  /**
   * Corrects the accounts of all tenants of a platform that has just been restored: repairs until one scan of all tenants (a `round`) has ended.
   * In a large account, one scan checks only some of the entries. That is enough here, because a restored account has no entries yet.
   */
  async repairRestored(): Promise<void> {
    const readRound = async () =>
      Number(await this.#store.call((redis) => redis.hget(this.#store.keys.accountRepairs, 'round')));
    const roundBefore = await readRound();
    do await this.repairAccounts(0);
    while ((await readRound()) === roundBefore);
  }

  async #readUse(tenant: string, fn: string | null, now: number): Promise<Used> {
    const [windows, held] = await Promise.all([this.#windows(tenant, fn, now), this.#holdings(tenant, fn, now)]);
    return { windows, held };
  }

  async #windows(tenant: string, fn: string | null, now: number): Promise<UsageCounts[]> {
    const account = this.#store.keys.account(tenant);
    const windows = QUOTA_WINDOWS.flatMap((window) => [window, spanNumber(window, now)]);
    const args = [account, fn ?? WHOLE, ...windows];
    const reply = await this.#store.script(SCRIPTS.counts, [`${account}:usage:latest`], args);
    const countsByWindow = Array.isArray(reply) ? reply : [];
    return QUOTA_WINDOWS.map((_, i) => toCounts(countsByWindow[i]?.[1] ?? []));
  }

  async #holdings(tenant: string, fn: string | null, now: number): Promise<Used['held']> {
    const { keys } = this.#store;
    const schedules = await this.#store.call((redis) => redis.hlen(keys.schedules(tenant)));
    const reply = await this.#store.script(
      SCRIPTS.use,
      [
        ...[keys.waiting(tenant), keys.storedUsage(tenant), keys.fileUsage(tenant), keys.fileExpiries(tenant)],
        ...[keys.admissionTenant(tenant), keys.debounces(tenant), keys.tenantQuestions(tenant)],
      ],
      [keys.account(tenant), now, fn ?? ''],
    );
    const numbers = Array.isArray(reply) ? reply.map(Number) : [];
    const [
      open = 0,
      openOfFunction = 0,
      waiting = 0,
      bytes = 0,
      pages = 0,
      redisBytes = 0,
      diskBytes = 0,
      latency = 0,
    ] = numbers;
    // Waiting invocations, pages and bytes are counted for the tenant only, not for a function.
    const tenantFactor = fn === null ? 1 : 0;
    return {
      'concurrent-invocations': fn === null ? Math.max(0, open - waiting) : openOfFunction,
      'waiting-invocations': waiting * tenantFactor,
      'latency-invocations': latency * tenantFactor,
      schedules: schedules * tenantFactor,
      'kv-pages': pages * tenantFactor,
      'storage-bytes': bytes * tenantFactor,
      'redis-bytes': redisBytes * tenantFactor,
      'disk-bytes': diskBytes * tenantFactor,
    };
  }

  #settingsKey(tenant: string): string {
    return this.#store.keys.quotaLimits(tenant);
  }

  #notesKey(tenant: string): string {
    return this.#store.keys.quotaNotes(tenant);
  }
}

/** The use of a limit, computed as in the scripts that enforce it. */
function usedOf({ quota }: ResolvedLimit, { windows, held }: Used, concurrencyLimit: number | null): number {
  const part = countedPart(quota);
  if (part !== null) {
    const window = windows[QUOTA_WINDOWS.indexOf(part.window)];
    return window === undefined ? 0 : countedUse(part.counted, window);
  }
  const heldAmount = held[quota as HeldQuota];
  // Of the open invocations (running and waiting), those beyond the concurrency limit count as waiting: they are in the
  // queue or on their way to a runtime.
  if (quota !== 'waiting-invocations' || concurrencyLimit === null) return heldAmount;
  return Math.max(0, held['concurrent-invocations'] + heldAmount - concurrencyLimit);
}

function defaultsOf(fields: Readonly<Record<string, string>>): DefaultLimits {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([quota, limit]) => (isQuotaName(quota) ? [[quota, Number(limit)]] : [])),
  );
}

function parseNote(text: string | undefined): ChangeNote {
  try {
    const { author = '', reason = '' } = JSON.parse(text ?? '{}') as Partial<ChangeNote>;
    return { author, reason };
  } catch (cause) {
    throw new StoreError('store-corrupt', 'A stored quota is not JSON.', { cause });
  }
}
