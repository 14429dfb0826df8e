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
