import type { Call } from '../control.ts';
import type { ApiKey, AuditEntry, AuditQuery, CreatedKey, NewKey, Tenant, TenantChange } from '../schemas/tenants.ts';

export type { ApiKey, AuditEntry, AuditQuery, CreatedKey, NewKey, Tenant, TenantChange };

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
  /** Newest first, before the cursor `before`. An operator's call without a tenant reads all tenants. */
  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]>;
}
