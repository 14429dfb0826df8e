import type { Tenants } from '../app/control/tenants.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** To be built. */
export class NodeTenants implements Tenants {
  list(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  get(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  create(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  change(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  keys(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  createKey(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  rotateKey(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  removeKey(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  audit(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
}
