import type { Releases } from '../app/control/releases.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** To be built. */
export class OriginReleases implements Releases {
  aliases(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  history(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  setAlias(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  removeAlias(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  rollback(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  plan(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  removeVersion(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  resolve(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
}
