import type { DeviceClient, GpuHostConnection, InferletOptions } from '../protocol/client.ts';
import { range } from './host.ts';

/** An inferlet, and one of its queues. */
export interface Guest {
  readonly inferlet: DeviceClient;
  readonly queue: number;
}

/** Opens an inferlet with one queue on the model `tiny`. */
export function guest(connection: GpuHostConnection, arrival: number, options: Partial<InferletOptions> = {}): Guest {
  const inferlet = connection.openInferlet({ id: `inferlet ${arrival}`, maxPages: 100, arrival, ...options });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}

/**
 * Computes tokens from position `start` on, with the keys in `pages` as context, and writes the keys of the tokens into the same pages. Asks for the
 * distribution after the last token.
 */
export function fill({ inferlet, queue }: Guest, pages: Uint32Array, tokens: readonly number[], start = 0) {
  return inferlet.ask(queue, {
    op: 'step',
    request: {
      tokens: Uint32Array.from(tokens),
      positions: range(start, start + tokens.length),
      inPages: pages,
      outPages: pages,
      mask: undefined,
      rows: 1,
      output: { tag: 'distributions', val: 3 },
    },
  });
}
