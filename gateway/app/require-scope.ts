import { includesScope, type Scope } from '#scheduler/tenants/rules.ts';
import type { Principal } from './control.ts';
import { GatewayError } from './errors/gateway-error.ts';

/** Throws `forbidden` when the caller's key lacks the scope. */
export function requireScope({ principal }: { readonly principal: Principal }, scope: Scope): void {
  if (includesScope(principal.scopes, scope)) return;
  throw new GatewayError('forbidden', `The API key ${principal.keyId} lacks the scope "${scope}".`);
}
