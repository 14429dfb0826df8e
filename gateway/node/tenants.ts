import type { Scheduler } from '#scheduler/scheduler.ts';
import type { Authentication, ApiKey as StoredKey } from '#scheduler/tenants/api-keys.ts';
import type { Act } from '#scheduler/tenants/audit.ts';
import { includesScope, includesScopes, MAX_KEYS, MAX_TENANTS } from '#scheduler/tenants/rules.ts';
import type { Call, Principal } from '../app/control.ts';
import { GatewayError, unknownTenant } from '../app/errors/gateway-error.ts';
import { requireScope } from '../app/require-scope.ts';
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
import { translating } from './store-errors.ts';

/** Tenants, their keys and the audit log, in Redis. The callers have checked names, settings and new keys with the schemas of the API. */
export class NodeTenants implements Tenants {
  readonly #scheduler: Scheduler;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  list(call: Call): Promise<readonly Tenant[]> {
    return translating(async () => {
      if (includesScope(call.principal.scopes, 'operator')) return this.#scheduler.tenants.list();
      requireAdministration(call, call.principal.tenant);
      const ownTenant = await this.#scheduler.tenants.get(call.principal.tenant);
      return ownTenant === null ? [] : [ownTenant];
    });
  }

  get(call: Call, name: string): Promise<Tenant | null> {
    return translating(async () => {
      requireAdministration(call, name);
      return this.#scheduler.tenants.get(name);
    });
  }

  create(call: Call, name: string, change: TenantChange): Promise<Tenant> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { tenants, audit } = this.#scheduler;
      const outcome = await tenants.create(name, change);
      if (outcome === 'exists')
        throw new GatewayError('conflict', `The tenant "${name}" already exists.`, {
          hint: `Choose another name, or change this tenant: \`pie tenants set ${name}\`.`,
        });
      if (outcome === 'full')
        throw new GatewayError('conflict', `There are ${MAX_TENANTS} tenants, the maximum.`, {
          hint: 'Use one of them (`pie tenants list`): a tenant cannot be removed.',
        });
      await audit.record(call.principal.keyId, name, 'tenant.create', name, { ...change });
      return this.#requireTenant(name);
    });
  }

  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null> {
    return translating(async () => {
      requireScope(call, 'operator');
      const { tenants, audit } = this.#scheduler;
      const { weight, suspended, latency } = change;
      if (suspended === true && name === call.principal.tenant) {
        throw new GatewayError('conflict', 'This is the tenant of your own key, which would stop working.', {
          hint: 'Suspend it with an operator’s key of another tenant.',
        });
      }
      if (!(await tenants.change(name, change))) return null;
      const { keyId } = call.principal;
      if (weight !== undefined) await audit.record(keyId, name, 'tenant.weight', name, { weight });
      if (suspended !== undefined)
        await audit.record(keyId, name, suspended ? 'tenant.suspend' : 'tenant.resume', name);
      if (latency !== undefined) await audit.record(keyId, name, 'tenant.latency', name, { latency });
      await this.#scheduler.pokeAdmission(name);
      return this.#requireTenant(name);
    });
  }

  keys(call: Call, tenant: string): Promise<readonly ApiKey[]> {
    return translating(async () => {
      requireAdministration(call, tenant);
      await this.#requireTenant(tenant);
      return (await this.#scheduler.apiKeys.list(tenant)).map(toApiKey);
    });
  }

  createKey(call: Call, tenant: string, { name, scopes, expiresAt }: NewKey): Promise<CreatedKey> {
    return translating(async () => {
      requireAdministration(call, tenant);
      if (!includesScopes(call.principal.scopes, scopes)) {
        throw new GatewayError('forbidden', 'A key cannot create a key with scopes that it lacks itself.', {
          field: '/scopes',
          hint: `Leave them out, or use a key that has them: yours has ${call.principal.scopes.join(', ')}.`,
        });
      }
      const expiresAtMs = expiresAt === undefined ? undefined : Date.parse(expiresAt);
      const { keyId } = call.principal;
      const outcome = await this.#scheduler.apiKeys.create(tenant, { name, scopes, expiresAt: expiresAtMs }, keyId);
      if (outcome.kind === 'unknown') throw unknownTenant(tenant);
      if (outcome.kind === 'full') throw tooManyKeys(tenant);
      return { ...toApiKey(outcome.key), apiKey: outcome.apiKey };
    });
  }

  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null> {
    return translating(async () => {
      const oldKey = await this.#keyToChange(call, tenant, id);
      if (oldKey === null) return null;
      const outcome = await this.#scheduler.apiKeys.rotate(tenant, id, graceMs, call.principal.keyId);
      if (outcome.kind === 'unknown') return null;
      if (outcome.kind === 'full') throw tooManyKeys(tenant);
      return { ...toApiKey(outcome.key), apiKey: outcome.apiKey };
    });
  }

  removeKey(call: Call, tenant: string, id: string): Promise<boolean> {
    return translating(async () => {
      const key = await this.#keyToChange(call, tenant, id);
      if (key === null) return false;
      const { principal } = call;
      // A tenant keeps its last admin key, unless an operator removes it with another key: an operator can create a new one.
      const keepLast = id === principal.keyId || !includesScope(principal.scopes, 'operator');
      const outcome = await this.#scheduler.apiKeys.remove(tenant, id, { keepLast, actor: principal.keyId });
      if (outcome === 'last') {
        throw new GatewayError(
          'conflict',
          `${id} is the last key with the scope \`admin\` of the tenant "${tenant}"; keys that expire within a day do not count.`,
          { hint: 'First create another key with the scope `admin`.' },
        );
      }
      return outcome === 'removed';
    });
  }

  audit(call: Call, { tenant, before, limit }: AuditQuery): Promise<readonly AuditEntry[]> {
    return translating(async () => {
      if (tenant !== undefined) requireAdministration(call, tenant);
      else requireScope(call, 'admin');
      const readsAll = tenant === undefined && includesScope(call.principal.scopes, 'operator');
      const acts = await this.#scheduler.audit.read({
        ...(!readsAll && { tenant: tenant ?? call.principal.tenant }),
        ...(before !== undefined && { before }),
        limit,
      });
      return acts.map(toEntry);
    });
  }

  /** A key that the caller may rotate and remove: in a tenant that the caller administers, and with no scope that the caller lacks. */
  async #keyToChange(call: Call, tenant: string, id: string): Promise<StoredKey | null> {
    requireAdministration(call, tenant);
    const key = await this.#scheduler.apiKeys.get(tenant, id);
    if (key !== null && !includesScopes(call.principal.scopes, key.scopes)) {
      throw new GatewayError('forbidden', `The key ${id} has scopes that your key lacks.`, {
        hint: `Use a key with the scopes ${key.scopes.join(', ')}.`,
      });
    }
    return key;
  }

  async #requireTenant(name: string): Promise<Tenant> {
    const tenant = await this.#scheduler.tenants.get(name);
    if (tenant === null) throw unknownTenant(name);
    return tenant;
  }
}

/** The principal of a key; null for an unknown key. Throws when the key has expired or its tenant is suspended. */
export function toPrincipal(authentication: Authentication): Principal | null {
  switch (authentication.kind) {
    case 'valid':
      return authentication.holder;
    case 'unknown':
      return null;
    case 'expired':
      throw new GatewayError('unauthorized', `The API key expired at ${new Date(authentication.at).toISOString()}.`, {
        hint: 'Use another key; `pie keys create` makes one.',
        headers: { 'www-authenticate': 'Bearer realm="pie", error="invalid_token"' },
      });
    case 'suspended':
      throw new GatewayError('tenant-suspended', `The tenant "${authentication.tenant}" is suspended.`);
  }
}

/** Requires `admin` for the caller's own tenant, `operator` for others. */
function requireAdministration(call: Call, tenant: string): void {
  requireScope(call, tenant === call.principal.tenant ? 'admin' : 'operator');
}

function tooManyKeys(tenant: string): GatewayError {
  return new GatewayError('conflict', `The tenant "${tenant}" has ${MAX_KEYS} keys, the maximum.`, {
    hint: '`pie keys list` shows them; remove unused ones.',
  });
}

function toApiKey(key: StoredKey): ApiKey {
  const { createdAt, expiresAt, lastUsedAt } = key;
  return { ...key, createdAt: iso(createdAt), expiresAt: isoOrNull(expiresAt), lastUsedAt: isoOrNull(lastUsedAt) };
}

function toEntry(act: Act): AuditEntry {
  return { ...act, at: iso(act.at) };
}

const iso = (at: number): string => new Date(at).toISOString();
const isoOrNull = (at: number | null): string | null => (at === null ? null : iso(at));
