import type { Operations } from '../app/control/operations.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** To be built. */
export class NodeOperations implements Operations {
  invocations(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
  load(): Promise<never> {
    throw new GatewayError('internal', 'Not built yet.');
  }
}
