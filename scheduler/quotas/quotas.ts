import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { toCounts, type UsageCounts } from '../usage/usage.ts';
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
import { type Counted, countedPart, type Held, isQuotaName, QUOTA_WINDOWS, type QuotaName } from './names.ts';
import { spanNumber } from './windows.ts';

/** A limit, how much of it is used, and where it comes from. */
export interface QuotaState extends QuotaUse {
  readonly source: LimitSource;
  /** Who set it for a time. */
  readonly override: { readonly author: string; readonly until: number; readonly reason: string } | null;
}

/** Who changes a setting, and why. */
export interface ChangeNote {
  readonly author: string;
  readonly reason: string;
}

/** `full`: the tenant has as many settings as it may. */
export type SetOutcome = 'ok' | 'full';

const SCRIPTS = {
  set: loadScript(new URL('./scripts/set-quota.lua', import.meta.url)),
  setDefaults: loadScript(new URL('./scripts/set-defaults.lua', import.meta.url)),
  use: loadScript(new URL('./scripts/read-use.lua', import.meta.url)),
  repairAccounts: loadScript(new URL('./scripts/repair-accounts.lua', import.meta.url)),
  counts: loadScript(new URL('../usage/scripts/read-counts.lua', import.meta.url)),
};

/** Eight tenants or so at a time: the accounts of a thousand are looked at within ten minutes. */
const ACCOUNT_REPAIR_INTERVAL_MS = 5000;

/** Stands for every tenant: its settings are the platform's defaults. */
const EVERY_TENANT = '*';
/** Says that a limit is there that counts; scripts look for those only then. */
const COUNTED_MARK = '#counted';

/** Stands for the sum over the functions of a tenant. */
const WHOLE = '*';

/** What a tenant or a function has used: in the windows of `QUOTA_WINDOWS`, and what it holds. */
interface Used {
  readonly windows: readonly UsageCounts[];
  readonly held: Readonly<Record<Held, number>>;
}

/** Limits of tenants and their functions: settings in Redis, read here and by the scripts that enforce them. */
export class Quotas {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Replaces what every tenant may use for which nothing else is set. */
  async setDefaults(defaults: DefaultLimits): Promise<void> {
    const entries = Object.entries(defaults).filter(([quota, limit]) => isQuotaName(quota) && limit !== undefined);
    const counted = entries.some(([quota]) => countedPart(quota as QuotaName) !== null);
    const args = [...entries.flat(), ...(counted ? [COUNTED_MARK, 1] : [])];
    await this.#store.script(SCRIPTS.setDefaults, [this.#settingsKey(EVERY_TENANT)], args);
  }

  /** The limit that binds a tenant (or one of its functions) now; null without one. */
  async limit(tenant: string, quota: QuotaName, fn: string | null = null): Promise<number | null> {
    const [setting, usual] = await this.#store.call((redis) =>
      Promise.all([
        redis.hget(this.#settingsKey(tenant), settingField(quota, fn)),
        redis.hget(this.#settingsKey(EVERY_TENANT), quota),
      ]),
    );
    const defaults: DefaultLimits = usual === null ? {} : { [quota]: Number(usual) };
    return resolve(quota, fn, parseSetting(setting), defaults, this.#store.clock())?.limit ?? null;
  }

  /** Every limit that binds a tenant, and with `fn` those of that function as well, with what is used of it. */
  status(tenant: string, fn: string | null = null): Promise<QuotaState[]> {
    return this.#states(tenant, () => (fn === null ? [] : [fn]));
  }

  /** Every limit that binds a tenant or any of its functions, with what is used of it. */
  statusOfAll(tenant: string): Promise<QuotaState[]> {
    return this.#states(tenant, functionsOf);
  }

  async #states(
    tenant: string,
    chosen: (settings: Readonly<Record<string, string>>) => readonly string[],
  ): Promise<QuotaState[]> {
    const now = this.#store.clock();
    const [settings, usual, notes] = await this.#store.call((redis) =>
      Promise.all([
        redis.hgetall(this.#settingsKey(tenant)),
        redis.hgetall(this.#settingsKey(EVERY_TENANT)),
        redis.hgetall(this.#notesKey(tenant)),
      ]),
    );
    const functions = chosen(settings);
    const limits = resolveAll(settings, defaultsOf(usual), functions, now);
    const holders = [null, ...functions];
    const used = new Map(
      await Promise.all(holders.map(async (fn) => [fn, await this.#used(tenant, fn, now)] as const)),
    );
    const running = limits.find(({ quota, function: of }) => quota === 'concurrent-invocations' && of === null);
    return limits.map((limit) => {
      const { quota, function: of, source, until } = limit;
      const found = used.get(of);
      const note = parseNote(notes[settingField(quota, of)]);
      return {
        ...{ quota, function: of, limit: limit.limit, resetsAt: resetOf(quota, now), source },
        used: found === undefined ? 0 : usedOf(limit, found, running?.limit ?? null),
        override: until === null ? null : { ...note, until },
      };
    });
  }

  /**
   * Sets a limit for good, for a time, or takes both away. A limit for good ends an override.
   *
   * @throws StoreError `invalid-argument` for what `changeFault` names.
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
        ...(until === null ? [limit ?? '', '', ''] : ['', limit ?? '', until]),
        JSON.stringify(note),
        MAX_SETTINGS,
      ],
    );
    return reply === 1 ? 'ok' : 'full';
  }

  /**
   * Holds the accounts of some tenants against what they are made of, those of the next ones with the next call; any number of processes may do so.
   * Answers how many were put right, null when it was done less than `intervalMs` ago.
   */
  async repairAccounts(intervalMs = ACCOUNT_REPAIR_INTERVAL_MS): Promise<number | null> {
    const { keys, clock } = this.#store;
    const args = [keys.prefix, clock(), intervalMs];
    const corrected = await this.#store.script(SCRIPTS.repairAccounts, [keys.accountRepairs, keys.tenants], args);
    return corrected === -1 ? null : Number(corrected);
  }

  /** What a tenant, or one of its functions, has used of whatever may be limited. */
  async #used(tenant: string, fn: string | null, now: number): Promise<Used> {
    const [windows, held] = await Promise.all([this.#windows(tenant, fn, now), this.#holdings(tenant, fn, now)]);
    return { windows, held };
  }

  async #windows(tenant: string, fn: string | null, now: number): Promise<UsageCounts[]> {
    const account = this.#store.keys.account(tenant);
    const windows = QUOTA_WINDOWS.flatMap((window) => [window, spanNumber(window, now)]);
    const args = [account, fn ?? WHOLE, ...windows];
    const reply = await this.#store.script(SCRIPTS.counts, [`${account}:usage:latest`], args);
    const found = Array.isArray(reply) ? reply : [];
    return QUOTA_WINDOWS.map((_, i) => toCounts(found[i]?.[1] ?? []));
  }

  async #holdings(tenant: string, fn: string | null, now: number): Promise<Used['held']> {
    const { keys } = this.#store;
    const reply = await this.#store.script(
      SCRIPTS.use,
      [
        ...[keys.waiting(tenant), keys.storedUsage(tenant), keys.fileUsage(tenant), keys.fileExpiries(tenant)],
        `${keys.admission}:tenant:${tenant}`,
      ],
      [keys.account(tenant), now, fn ?? ''],
    );
    const numbers = Array.isArray(reply) ? reply.map(Number) : [];
    const [open = 0, openOne = 0, waiting = 0, bytes = 0, pages = 0, redisBytes = 0, diskBytes = 0] = numbers;
    // Of a function nobody counts what waits, pages or bytes.
    const whole = fn === null ? 1 : 0;
    return {
      'concurrent-invocations': fn === null ? Math.max(0, open - waiting) : openOne,
      'waiting-invocations': waiting * whole,
      'kv-pages': pages * whole,
      'storage-bytes': bytes * whole,
      'redis-bytes': redisBytes * whole,
      'disk-bytes': diskBytes * whole,
    };
  }

  #settingsKey(tenant: string): string {
    return `${this.#store.keys.account(tenant)}:quotas`;
  }

  #notesKey(tenant: string): string {
    return `${this.#store.keys.account(tenant)}:quota-notes`;
  }
}

/** What is used of a limit, as the scripts that enforce it say. */
function usedOf({ quota }: ResolvedLimit, { windows, held }: Used, concurrent: number | null): number {
  const part = countedPart(quota);
  if (part !== null) {
    const window = windows[QUOTA_WINDOWS.indexOf(part.window)];
    return window === undefined ? 0 : countedUse(part.counted, window);
  }
  const holds = held[quota as Held];
  // Beyond what may run at once a tenant's invocations wait, in line or on their way.
  if (quota !== 'waiting-invocations' || concurrent === null) return holds;
  return Math.max(0, held['concurrent-invocations'] + holds - concurrent);
}

/** What a window has used of a kind of quota. */
export function countedUse(counted: Counted, counts: UsageCounts): number {
  switch (counted) {
    case 'requests':
      return counts.requests;
    case 'tokens':
      return Math.max(0, counts.inputTokens - counts.cachedTokens) + counts.outputTokens;
    case 'gpu-ms':
      return counts.gpuMs;
    case 'cpu-ms':
      return counts.cpuMs;
  }
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
    throw new StoreError('store-corrupt', 'What is stored of a quota is no JSON.', { cause });
  }
}
