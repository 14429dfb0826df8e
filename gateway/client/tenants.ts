import type {
  ApiKey,
  AuditEntry,
  CreatedKey,
  NewKey,
  AuditQuery as Query,
  Tenant,
  TenantChange,
} from '../app/resources/tenants.ts';
import { type CallOptions, common, queryOf, withBody, withQuery } from './calls.ts';
import type { Http } from './http.ts';

export interface AuditQuery extends CallOptions, Partial<Query> {}

/** Tenants, their API keys, and the audit log. */
export class TenantsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists tenants by name; without the scope `operator` only the key's own. */
  async list(options: CallOptions = {}): Promise<readonly Tenant[]> {
    return (await this.#http.json<{ tenants: Tenant[] }>('/v1/tenants', common(options))).tenants;
  }

  async get(name: string, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json(tenantPath(name), common(options));
  }

  async create(name: string, change: TenantChange = {}, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json('/v1/tenants', withBody(options, 'POST', { name, ...change }));
  }

  async change(name: string, change: TenantChange, options: CallOptions = {}): Promise<Tenant> {
    return this.#http.json(tenantPath(name), withBody(options, 'PATCH', change));
  }

  /** Keys of a tenant; of the caller's own tenant by default. */
  async keys(tenant?: string, options: CallOptions = {}): Promise<readonly ApiKey[]> {
    return (await this.#http.json<{ keys: ApiKey[] }>(keysPath(tenant), common(options))).keys;
  }

  /** Creates a key. No other answer ever contains the text of the key. */
  async createKey(key: NewKey, tenant?: string, options: CallOptions = {}): Promise<CreatedKey> {
    return this.#http.json(keysPath(tenant), withBody(options, 'POST', key));
  }

  /** Replaces a key; the old one works for `graceMs` longer. */
  async rotateKey(id: string, graceMs: number, tenant?: string, options: CallOptions = {}): Promise<CreatedKey> {
    const path = `${keysPath(tenant)}/${encodeURIComponent(id)}/rotate`;
    return this.#http.json(path, withBody(options, 'POST', { graceMs }));
  }

  async removeKey(id: string, tenant?: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(`${keysPath(tenant)}/${encodeURIComponent(id)}`, {
      ...common(options),
      method: 'DELETE',
    });
  }

  /** Administrative acts, newest first. */
  async audit(query: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    const path = withQuery('/v1/audit', queryOf(query));
    return (await this.#http.json<{ entries: AuditEntry[] }>(path, common(query))).entries;
  }
}

function tenantPath(name: string): string {
  return `/v1/tenants/${encodeURIComponent(name)}`;
}

function keysPath(tenant: string | undefined): string {
  return tenant === undefined ? '/v1/keys' : `${tenantPath(tenant)}/keys`;
}
