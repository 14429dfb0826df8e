/** Rules for tenants, keys and the audit log; nothing here touches Redis. */

/** A tenant's name appears in URLs, commands and Redis keys. */
export const TENANT_NAME = /^[a-z][a-z0-9-]{0,62}$/;
/** A key's name, for people. Printable, so that terminals and tables can show it. */
export const KEY_NAME = /^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u;
/** Identifies a key without revealing it: the first 12 digits of its hash. */
export const KEY_ID = /^key_[0-9a-f]{12}$/;

/** Cursor of an entry of the audit log. */
export const AUDIT_CURSOR = /^\d{1,15}-\d{1,19}$/;

/** A tenant's weight in the fair share between waiting tenants. */
export const WEIGHT = { least: 1, most: 1000, usual: 100 } as const;

/** Maximum tenants of one installation. */
export const MAX_TENANTS = 10_000;
/** Maximum keys of one tenant, those in their grace period included. */
export const MAX_KEYS = 100;

const DAY_MS = 86_400_000;
/** `ApiKeys.remove` with `keepLast` does not count other administrative keys that expire within this time. */
export const LASTING_MS = DAY_MS;
/** Longest time that a rotated key keeps working beside its replacement. */
export const MAX_GRACE_MS = 30 * DAY_MS;
/** Longest lifetime of a key that expires. */
export const MAX_LIFETIME_MS = 3660 * DAY_MS;
/** Time for which an expired key stays listed and is reported as expired instead of unknown. */
export const EXPIRED_KEPT_MS = 7 * DAY_MS;

export const SCOPES = ['invoke', 'deploy', 'admin', 'operator'] as const;
/** The rights of a key. `admin` includes `invoke` and `deploy`; `operator` includes `admin`, and acts on every tenant. */
export type Scope = (typeof SCOPES)[number];

const INCLUDED: Readonly<Record<Scope, readonly Scope[]>> = {
  invoke: ['invoke'],
  deploy: ['deploy'],
  admin: ['invoke', 'deploy', 'admin'],
  operator: SCOPES,
};

/** True when a key with these scopes has `scope`, directly or by inclusion. */
export function includesScope(granted: readonly Scope[], scope: Scope): boolean {
  return granted.some((own) => INCLUDED[own].includes(scope));
}

/**
 * True when a key with the scopes `granted` may create, rotate or remove a key with the scopes `wanted`: it must have
 * all of them itself.
 */
export function includesScopes(granted: readonly Scope[], wanted: readonly Scope[]): boolean {
  return wanted.every((scope) => includesScope(granted, scope));
}
