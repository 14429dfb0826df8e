import type { Call, Scope } from '../control.ts';

export interface Tenant {
  readonly name: string;
  /** ISO 8601. */
  readonly createdAt: string;
  /** Its part in the fair share between tenants that wait: 1 to 1000, 100 for a new one. */
  readonly weight: number;
  /** Its keys are refused, and its invocations are not started. */
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
  /** To the minute; null when it was never used. */
  readonly lastUsedAt: string | null;
}

export interface NewKey {
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly expiresAt?: string | undefined;
}

/** The only time that a key is shown. */
export type CreatedKey = ApiKey & { readonly apiKey: string };

/** An administrative act: who did what to what, when. Never holds a secret. */
export interface AuditEntry {
  /** Opaque; reading goes on before it. */
  readonly cursor: string;
  /** ISO 8601. */
  readonly at: string;
  readonly tenant: string;
  /** Id of the acting key; `platform` for the platform itself. */
  readonly actor: string;
  /** Such as `key.create`, `quota.set`, `alias.set`, `function.deploy`, `secret.set`, `tenant.suspend`. */
  readonly action: string;
  /** What it was done to: a key's id, `name@version`, a quota. */
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface AuditQuery {
  readonly tenant?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit: number;
}

/**
 * Tenants, their keys and what was done to them. A key of the scope `operator` may act on every tenant; `admin` on its own alone, and such a
 * caller is answered `forbidden` for another.
 */
export interface Tenants {
  list(call: Call): Promise<readonly Tenant[]>;
  get(call: Call, name: string): Promise<Tenant | null>;
  /** Throws `conflict` when the name is taken. */
  create(call: Call, name: string, change: TenantChange): Promise<Tenant>;
  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null>;
  /** Oldest first. Throws `unknown-tenant`, as the next one does. */
  keys(call: Call, tenant: string): Promise<readonly ApiKey[]>;
  createKey(call: Call, tenant: string, key: NewKey): Promise<CreatedKey>;
  /** A new key with the same name, scopes and expiry; the old one works for `graceMs` longer. Null when there is none. */
  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null>;
  removeKey(call: Call, tenant: string, id: string): Promise<boolean>;
  /** Newest first, before `cursor`. An operator's call without a tenant reads all of them. */
  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]>;
}
