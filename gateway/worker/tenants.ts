import type { Call } from '../app/control.ts';
import type {
  ApiKey,
  AuditEntry,
  AuditQuery,
  CreatedKey,
  NewKey,
  Tenant,
  TenantChange,
  Tenants,
} from '../app/resources/tenants.ts';
import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Tenants, keys and the audit log by HTTP: the origin stores them, and decides about access. */
export class OriginTenants implements Tenants {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly Tenant[]> {
    return translating(() => this.#client(call).tenants.list(options(call)));
  }

  get(call: Call, name: string): Promise<Tenant | null> {
    return orNull('unknown-tenant', () => this.#client(call).tenants.get(name, options(call)));
  }

  create(call: Call, name: string, change: TenantChange): Promise<Tenant> {
    return translating(() => this.#client(call).tenants.create(name, change, options(call)));
  }

  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null> {
    return orNull('unknown-tenant', () => this.#client(call).tenants.change(name, change, options(call)));
  }

  keys(call: Call, tenant: string): Promise<readonly ApiKey[]> {
    return translating(() => this.#client(call).tenants.keys(tenant, options(call)));
  }

  createKey(call: Call, tenant: string, key: NewKey): Promise<CreatedKey> {
    return translating(() => this.#client(call).tenants.createKey(key, tenant, options(call)));
  }

  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null> {
    return orNull('unknown-key', () => this.#client(call).tenants.rotateKey(id, graceMs, tenant, options(call)));
  }

  removeKey(call: Call, tenant: string, id: string): Promise<boolean> {
    return isFound('unknown-key', () => this.#client(call).tenants.removeKey(id, tenant, options(call)));
  }

  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]> {
    return translating(() => this.#client(call).tenants.audit({ ...options(call), ...query }));
  }
}
