import type { Call, Scope } from '../control.ts';

export interface Tenant {
  readonly name: string;
  /** ISO 8601. */
  readonly createdAt: string;
  /** The tenant's weight in the fair share between waiting tenants: 1 to 1000, 100 for a new tenant. */
  readonly weight: number;
  /** The gateway refuses the tenant's keys, and the scheduler does not start its invocations. */
  readonly suspended: boolean;
}

export interface TenantChange {
  readonly weight?: number | undefined;
  readonly suspended?: boolean | undefined;
}

export interface ApiKey {
  /** Names the key without revealing it: `key_` and 12 digits. */
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** Times are ISO 8601. */
  readonly createdAt: string;
  readonly expiresAt: string | null;
  /** To the minute; null when the key was never used. */
  readonly lastUsedAt: string | null;
}

export interface NewKey {
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly expiresAt?: string | undefined;
}

/** A new key in clear text; no other answer shows it. */
export type CreatedKey = ApiKey & { readonly apiKey: string };

/** An administrative act: its actor, action, subject and time. Never holds a secret. */
export interface AuditEntry {
  /** Opaque cursor; the next page holds the entries before it. */
  readonly cursor: string;
  /** ISO 8601. */
  readonly at: string;
  readonly tenant: string;
  /** Id of the acting key; `platform` for the platform itself. */
  readonly actor: string;
  /** Such as `key.create`, `quota.set`, `alias.set`, `function.deploy`, `secret.set`, `tenant.suspend`. */
  readonly action: string;
  /** Subject of the act: a key's id, `name@version`, a quota. */
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface AuditQuery {
  readonly tenant?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit: number;
}

/**
 * Tenants, their keys and the audit log. A key of the scope `operator` may act on every tenant, a key of the scope `admin` only on its own:
 * for another tenant it gets `forbidden`.
 */
export interface Tenants {
  list(call: Call): Promise<readonly Tenant[]>;
  get(call: Call, name: string): Promise<Tenant | null>;
  /** Throws `conflict` when the name is taken. */
  create(call: Call, name: string, change: TenantChange): Promise<Tenant>;
  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null>;
  /** Lists keys, oldest first. Throws `unknown-tenant`, as `createKey` does. */
  keys(call: Call, tenant: string): Promise<readonly ApiKey[]>;
  createKey(call: Call, tenant: string, key: NewKey): Promise<CreatedKey>;
  /** Makes a key with the same name, scopes and expiry; the old key works for `graceMs` longer. Null when there is no such key. */
  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null>;
  removeKey(call: Call, tenant: string, id: string): Promise<boolean>;
  /** Newest first, before `cursor`. An operator's call without a tenant reads all tenants. */
  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]>;
}
