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

/** The bytes that one inferlet takes of its tenant's share. */
export class TakenBytes {
  readonly #shares: Shares;
  readonly #tenant: string;
  #held = 0;
  #closed = false;

  constructor(shares: Shares, tenant: string) {
    this.#shares = shares;
    this.#tenant = tenant;
  }

  /** True when the tenant may take `bytes` more. */
  fits(bytes: number): boolean {
    return this.#shares.fits(this.#tenant, bytes);
  }

  /** Counts bytes; negative ones were given back. Counts nothing once closed. */
  add(bytes: number): void {
    if (this.#closed || bytes === 0) return;
    this.#held += bytes;
    if (bytes > 0) this.#shares.add(this.#tenant, bytes);
    else this.#shares.leave(this.#tenant, -bytes);
  }

  /** Gives everything back. */
  close(): void {
    this.add(-this.#held);
    this.#closed = true;
  }
}
