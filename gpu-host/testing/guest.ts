import type { GpuHostConnection, GpuInferlet } from '../protocol/client.ts';

export interface Guest {
  readonly inferlet: GpuInferlet;
  readonly queue: number;
}

/** An inferlet with one queue on the model `tiny`. */
export function guest(connection: GpuHostConnection, arrival: number): Guest {
  const inferlet = connection.openInferlet({ id: `inferlet ${arrival}`, maxPages: 100, arrival });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}
