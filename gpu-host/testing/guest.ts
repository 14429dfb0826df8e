import type { GpuHostConnection, GpuInferlet, InferletOptions } from '../protocol/client.ts';

export interface Guest {
  readonly inferlet: GpuInferlet;
  readonly queue: number;
}

/** An inferlet with one queue on the model `tiny`. */
export function guest(connection: GpuHostConnection, arrival: number, options: Partial<InferletOptions> = {}): Guest {
  const inferlet = connection.openInferlet({ id: `inferlet ${arrival}`, maxPages: 100, arrival, ...options });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}
