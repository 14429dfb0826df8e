import type { Quotas } from '../app/control/quotas.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** To be built. */
export class NodeQuotas implements Quotas {
  status(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  set(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  usage(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  minutes(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
}
