import { randomUUID } from 'node:crypto';
import type { Logger } from '../policies/logger.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { AUDIT_CURSOR } from './rules.ts';

const SCRIPT = loadScript(new URL('./tenants.lua', import.meta.url), 'record-act');

/** Approximate maximum of entries in each stream of one tenant. */
const KEPT = 2000;
/** Approximate maximum of entries in each stream of all tenants together. */
const KEPT_OF_ALL = 20_000;
/** Acts with a stream of their own, so that many deploys cannot push them out of the log. */
const GUARDED = /^(tenant|key|quota|webhook-secret|gpu-host|machine)\./;
/** Maximum characters of an entry's target; a longer target is cut. */
const MAX_TARGET = 256;
/** Maximum characters of an entry's details as JSON text; longer details are left out. */
const MAX_DETAILS = 4096;
/** Maximum number of entries that are read at once. */
const MAX_AUDIT_LIMIT = 1000;

/** Actor of acts that the platform made, without a key. */
export const PLATFORM_ACTOR = 'platform';

/** An administrative act. */
export interface Act {
  /** Opaque; pass it as `before` to read older entries. */
  readonly cursor: string;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly tenant: string;
  /** Id of the acting key, or `PLATFORM_ACTOR`. */
  readonly actor: string;
  /** `<thing>.<verb>`: `key.create`, `alias.set`, `function.deploy`, `secret.set`, `tenant.suspend`, `quota.set`. */
  readonly action: string;
  /** Object of the act: a key's id, `name@version`, a quota. */
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** An act to record. */
export interface NewAct {
  readonly actor: string;
  readonly tenant: string;
  readonly action: string;
  readonly target: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** Arguments for the scripts of `tenants.lua` that record an act. Without an act, the script stores no entry. */
export function actArguments(
  { keys, clock }: Store,
  act: NewAct | null,
): { keys: string[]; fields: (string | number)[] } {
  // The script finds its keys by position. Without an act it uses none of these four.
  if (act === null) return { keys: Array(4).fill(keys.audit()), fields: [] };
  const { actor, tenant, action, target, details = {} } = act;
  const streams = [
    [keys.audit(tenant), keys.guardedAudit(tenant)],
    [keys.audit(), keys.guardedAudit()],
  ];
  return {
    // The script adds the act to the first stream of each pair: a guarded act to the guarded stream.
    keys: streams.flatMap((pair) => (GUARDED.test(action) ? pair.reverse() : pair)),
    fields: [
      ...[KEPT, KEPT_OF_ALL],
      ...['at', clock(), 'tenant', tenant, 'actor', actor, 'action', action],
      ...['target', target.slice(0, MAX_TARGET), 'details', detailsText(details)],
    ],
  };
}

/** The log of administrative acts: actor, act, target and time. It holds no secrets, and callers must pass none. */
export class AuditLog {
  readonly #store: Store;
  readonly #log: Logger;

  /** @param log gets the whole entry of an act that could not be stored */
  constructor(store: Store, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  /**
   * Records an act that has already happened. Never throws: a failure to record does not undo the act. (`ApiKeys` does
   * not call this: its scripts change keys in one step with their entries.)
   *
   * @example await audit.record(call.principal.keyId, tenant, 'alias.set', 'story@live', { version });
   */
  async record(
    actor: string,
    tenant: string,
    action: string,
    target: string,
    details: Readonly<Record<string, unknown>> = {},
  ): Promise<void> {
    const act = { actor, tenant, action, target, details };
    try {
      const { keys, fields } = actArguments(this.#store, act);
      await this.#store.script(SCRIPT, [this.#store.keys.reply(randomUUID()), ...keys], [REPLY_MS, ...fields]);
    } catch (error) {
      this.#log.error(
        { error, actor, tenant, action, target, details: detailsText(details) },
        'the audit log lacks an act, which took effect',
      );
    }
  }

  /** Entries, newest first, before a cursor; of all tenants when no tenant is given. */
  async read(query: { readonly tenant?: string; readonly before?: string; readonly limit: number }): Promise<Act[]> {
    const { tenant, before, limit } = query;
    if (before !== undefined && !AUDIT_CURSOR.test(before)) {
      throw new StoreError('invalid-argument', 'The cursor is not one of the audit log.');
    }
    const from = before === undefined ? '+' : `(${before}`;
    const count = Math.min(limit, MAX_AUDIT_LIMIT);
    const { keys } = this.#store;
    const read = (key: string) => this.#store.call((redis) => redis.xrevrange(key, from, '-', 'COUNT', count));
    const entries = await Promise.all([keys.audit(tenant), keys.guardedAudit(tenant)].map(read));
    return entries
      .flat()
      .sort(([a], [b]) => newestFirst(a, b))
      .slice(0, count)
      .map(parseAct);
  }
}

function detailsText(details: Readonly<Record<string, unknown>>): string {
  try {
    const text = JSON.stringify(details);
    return text.length > MAX_DETAILS ? '{"truncated":true}' : text;
  } catch {
    return '{"notJson":true}';
  }
}

/** Compares stream ids, `<ms>-<number>`. */
function newestFirst(a: string, b: string): number {
  const [aMs = 0, aNumber = 0] = a.split('-').map(Number);
  const [bMs = 0, bNumber = 0] = b.split('-').map(Number);
  return bMs - aMs || bNumber - aNumber;
}

function parseAct([cursor, fields]: [id: string, fields: string[]]): Act {
  const value = (name: string): string => {
    for (let i = 0; i < fields.length; i += 2) if (fields[i] === name) return fields[i + 1] ?? '';
    return '';
  };
  return {
    cursor,
    at: Number(value('at')),
    tenant: value('tenant'),
    actor: value('actor'),
    action: value('action'),
    target: value('target'),
    details: JSON.parse(value('details') || '{}') as Record<string, unknown>,
  };
}
