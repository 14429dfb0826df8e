import type { Secrets } from '../app/control/secrets.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** To be built. */
export class OriginSecrets implements Secrets {
  list(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  set(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  remove(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
}
