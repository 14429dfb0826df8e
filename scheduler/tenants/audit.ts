import { randomUUID } from 'node:crypto';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';

const SCRIPT = loadScript(new URL('./scripts/record-act.lua', import.meta.url));

/** Entries that are kept, about: of one tenant, and of all together. */
const KEPT = 2000;
const KEPT_OF_ALL = 20_000;
const REPLY_MS = 60_000;
/** Longest target and details (as JSON) of an entry, characters. */
const MAX_TARGET = 256;
const MAX_DETAILS = 4096;
/** Most entries that are read at once. */
export const MAX_AUDIT_LIMIT = 1000;

/** Who acts when no key does. */
export const PLATFORM_ACTOR = 'platform';

/** Place of an entry, as `read` gives it out. */
export const AUDIT_CURSOR = /^\d{1,15}-\d{1,19}$/;

/** An administrative act. */
export interface Act {
  /** Opaque; reading goes on before it. */
  readonly cursor: string;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly tenant: string;
  /** Id of the acting key, or `PLATFORM_ACTOR`. */
  readonly actor: string;
  /** `<thing>.<verb>`: `key.create`, `alias.set`, `function.deploy`, `secret.set`, `tenant.suspend`, `quota.set`. */
  readonly action: string;
  /** What it was done to: a key's id, `name@version`, a quota. */
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The log of administrative acts: what was done to a tenant, by whom, when. It holds no secrets; what comes in may not either. */
export class AuditLog {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Writes down an act that has happened.
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
    const { keys } = this.#store;
    const text = JSON.stringify(details);
    await this.#store.script(
      SCRIPT,
      [keys.audit(tenant), keys.audit(), keys.reply(randomUUID())],
      [
        ...[KEPT, KEPT_OF_ALL, REPLY_MS],
        ...['at', this.#store.clock(), 'tenant', tenant, 'actor', actor, 'action', action],
        ...['target', target.slice(0, MAX_TARGET)],
        ...['details', text.length > MAX_DETAILS ? '{"truncated":true}' : text],
      ],
    );
  }

  /** Newest first, before a cursor; of all tenants without one. */
  async read(query: { readonly tenant?: string; readonly before?: string; readonly limit: number }): Promise<Act[]> {
    const { tenant, before, limit } = query;
    if (before !== undefined && !AUDIT_CURSOR.test(before)) {
      throw new StoreError('invalid-argument', 'The cursor is not one of the audit log.');
    }
    const from = before === undefined ? '+' : `(${before}`;
    const count = Math.min(limit, MAX_AUDIT_LIMIT);
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(this.#store.keys.audit(tenant), from, '-', 'COUNT', count),
    );
    return entries.map(parseAct);
  }
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
