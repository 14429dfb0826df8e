import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { Shares } from '#scheduler/policies/shares.ts';

/**
 * Memory of the process that inferlets take besides pages. Tenants share it: the limits of one inferlet alone would let a tenant with many
 * of them exhaust it.
 */
export interface HostBytes {
  /** JavaScript's heap: pending calls, and places for embeds. */
  readonly heap: Shares;
  /** Values of states and images, outside the heap. */
  readonly values: Shares;
}

/** Memory for `heapBytes` and `valueBytes`; a quarter of the heap's limit, and of the machine's memory, by default. */
export function hostBytes(heapBytes = getHeapStatistics().heap_size_limit / 4, valueBytes = totalmem() / 4): HostBytes {
  return { heap: new Shares(heapBytes), values: new Shares(valueBytes) };
}
