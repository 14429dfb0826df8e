export const SCOPES = ['invoke', 'deploy', 'admin', 'operator'] as const;
/** What a key may do. `admin` includes `invoke` and `deploy`; `operator` includes `admin`, and acts on every tenant. */
export type Scope = (typeof SCOPES)[number];

const INCLUDED: Readonly<Record<Scope, readonly Scope[]>> = {
  invoke: ['invoke'],
  deploy: ['deploy'],
  admin: ['invoke', 'deploy', 'admin'],
  operator: SCOPES,
};

/** Whether a key with these scopes has another one: its own, or one that is included. */
export function includesScope(granted: readonly Scope[], scope: Scope): boolean {
  return granted.some((own) => INCLUDED[own].includes(scope));
}

/** Whether a key with the scopes `granted` may make, or take over, one with `wanted`: nobody hands on more than they have. */
export function includesScopes(granted: readonly Scope[], wanted: readonly Scope[]): boolean {
  return wanted.every((scope) => includesScope(granted, scope));
}
