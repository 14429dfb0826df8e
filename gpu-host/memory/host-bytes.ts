import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { Shares } from '#scheduler/policies/shares.ts';
import { Copies } from './transfers.ts';

/**
 * Memory of the process that inferlets take besides pages. Tenants share it: the limits of one inferlet alone would let a tenant with many
 * of them exhaust it.
 */
export interface HostBytes {
  /** JavaScript's heap: pending calls, and the tables of embeds. */
  readonly heap: Shares;
  /** Values of states and images, outside the heap. */
  readonly values: Shares;
  /** Copies of pages of other hosts, outside the heap. */
  readonly copies: Copies;
}

/** Maximum bytes of copies by default; a tenant alone may have half. */
const COPY_BYTES = 1024 ** 3;

/**
 * Memory of `heapBytes` in the heap and `valueBytes` outside: by default a quarter of the heap's limit, and a quarter of the machine's memory.
 * @param copyBytes bytes for copies; 1 GiB by default, or an eighth of the machine's memory if that is less
 */
export function hostBytes(
  heapBytes = getHeapStatistics().heap_size_limit / 4,
  valueBytes = totalmem() / 4,
  copyBytes = Math.min(COPY_BYTES, totalmem() / 8),
): HostBytes {
  return { heap: new Shares(heapBytes), values: new Shares(valueBytes), copies: new Copies(copyBytes) };
}
