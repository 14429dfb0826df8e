import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { toCounts, type UsageCounts } from '../usage/usage.ts';
import type { QuotaUse } from './exceeded.ts';
import {
  changeFault,
  type DefaultLimits,
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
  counts: loadScript(new URL('../usage/scripts/read-counts.lua', import.meta.url)),
};

/** Stands for every tenant: its settings are the platform's defaults. */
const EVERY_TENANT = '*';
/** Says that a limit is there that counts; scripts look for those only then. */
const COUNTED_MARK = '#counted';

/** What a tenant holds of each quota that is held. */
type Holdings = Readonly<Record<Held, { readonly tenant: number; readonly function: number }>>;

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
  async status(tenant: string, fn: string | null = null): Promise<QuotaState[]> {
    const now = this.#store.clock();
    const [settings, usual, notes] = await this.#store.call((redis) =>
      Promise.all([
        redis.hgetall(this.#settingsKey(tenant)),
        redis.hgetall(this.#settingsKey(EVERY_TENANT)),
        redis.hgetall(this.#notesKey(tenant)),
      ]),
    );
    const limits = resolveAll(settings, defaultsOf(usual), fn, now);
    const [counts, holdings] = await Promise.all([this.#counts(tenant, fn, now), this.#holdings(tenant, fn, now)]);
    const running = limits.find(({ quota, function: of }) => quota === 'concurrent-invocations' && of === null);
    return limits.map((limit) => {
      const { quota, function: of, source, until } = limit;
      const used = usedOf(limit, counts, holdings, running?.limit ?? null);
      const note = parseNote(notes[settingField(quota, of)]);
      return {
        ...{ quota, function: of, limit: limit.limit, used, resetsAt: resetOf(quota, now), source },
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

  async #counts(tenant: string, fn: string | null, now: number): Promise<WindowCounts> {
    const account = this.#store.keys.account(tenant);
    const windows = QUOTA_WINDOWS.flatMap((window) => [window, spanNumber(window, now)]);
    const read = async (field: string): Promise<UsageCounts[]> => {
      const reply = await this.#store.script(SCRIPTS.counts, [`${account}:usage:latest`], [account, field, ...windows]);
      const found = Array.isArray(reply) ? reply : [];
      return QUOTA_WINDOWS.map((_, i) => toCounts(found[i]?.[1] ?? []));
    };
    const [whole, one] = await Promise.all([read(EVERY_TENANT), fn === null ? [] : read(fn)]);
    return { tenant: whole, function: one };
  }

  async #holdings(tenant: string, fn: string | null, now: number): Promise<Holdings> {
    const { keys } = this.#store;
    const reply = await this.#store.script(
      SCRIPTS.use,
      [
        ...[keys.waiting(tenant), keys.storedUsage(tenant), keys.fileUsage(tenant), keys.fileExpiries(tenant)],
        `${keys.admission}:tenant:${tenant}`,
      ],
      [keys.account(tenant), now, fn ?? ''],
    );
    const [open = 0, openOne = 0, waiting = 0, bytes = 0, pages = 0] = Array.isArray(reply) ? reply.map(Number) : [];
    return {
      'concurrent-invocations': { tenant: Math.max(0, open - waiting), function: openOne },
      'waiting-invocations': { tenant: waiting, function: 0 },
      'kv-pages': { tenant: pages, function: 0 },
      'storage-bytes': { tenant: bytes, function: 0 },
    };
  }

  #settingsKey(tenant: string): string {
    return `${this.#store.keys.account(tenant)}:quotas`;
  }

  #notesKey(tenant: string): string {
    return `${this.#store.keys.account(tenant)}:quota-notes`;
  }
}

/** By window of `QUOTA_WINDOWS`. */
interface WindowCounts {
  readonly tenant: readonly UsageCounts[];
  readonly function: readonly UsageCounts[];
}

/** What is used of a limit, as the scripts that enforce it say. */
function usedOf(
  { quota, function: fn }: ResolvedLimit,
  counts: WindowCounts,
  holdings: Holdings,
  concurrent: number | null,
): number {
  const part = countedPart(quota);
  const whose = fn === null ? 'tenant' : 'function';
  if (part !== null) {
    const window = counts[whose][QUOTA_WINDOWS.indexOf(part.window)];
    return window === undefined ? 0 : countedUse(part.counted, window);
  }
  const held = holdings[quota as Held][whose];
  // Beyond what may run at once a tenant's invocations wait, in line or on their way.
  if (quota !== 'waiting-invocations' || concurrent === null) return held;
  return Math.max(0, holdings['concurrent-invocations'].tenant + held - concurrent);
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
