import type { DeviceClient, GpuHostConnection, InferletOptions } from '../protocol/client.ts';

export interface Guest {
  readonly inferlet: DeviceClient;
  readonly queue: number;
}

/** An inferlet with one queue on the model `tiny`. */
export function guest(connection: GpuHostConnection, arrival: number, options: Partial<InferletOptions> = {}): Guest {
  const inferlet = connection.openInferlet({ id: `inferlet ${arrival}`, maxPages: 100, arrival, ...options });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}
