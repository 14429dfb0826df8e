import { SHARED_FUNCTIONS } from '#scheduler/functions/functions.ts';
import { PLATFORM_TENANT } from '#scheduler/functions/types.ts';
import { includesScope } from '#scheduler/tenants/rules.ts';
import type { Principal } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** Throws `forbidden` when the function serves every tenant's requests and the key lacks the scope `operator`. */
export function requireOwn({ tenant, keyId, scopes }: Principal, name: string): void {
  if (tenant !== PLATFORM_TENANT || !SHARED_FUNCTIONS.includes(name) || includesScope(scopes, 'operator')) return;
  throw new GatewayError(
    'forbidden',
    `${name} of the tenant "${tenant}" runs the requests of all tenants; only a key with the scope "operator" may change it, and ${keyId} lacks the scope.`,
    { hint: 'Use a key of an operator. Or deploy the function in another tenant, which then runs its own version.' },
  );
}
