import { SHARED_FUNCTIONS } from '#scheduler/functions/functions.ts';
import { PLATFORM_TENANT } from '#scheduler/functions/types.ts';
import { includesScope } from '#scheduler/tenants/scopes.ts';
import type { Principal } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** Throws `forbidden` when the function serves every tenant's requests and the key lacks the scope `operator`. */
export function requireOwn({ tenant, keyId, scopes }: Principal, name: string): void {
  if (tenant !== PLATFORM_TENANT || !SHARED_FUNCTIONS.includes(name) || includesScope(scopes, 'operator')) return;
  throw new GatewayError(
    'forbidden',
    `${name} of the tenant "${tenant}" runs the requests of all tenants; the API key ${keyId} lacks the scope "operator", which changing it takes.`,
    { hint: 'Use a key of an operator, or deploy it as a function of another tenant, which runs that in its place.' },
  );
}
