import { INSTANCE_OVERHEAD_BYTES } from '../pool/pool.ts';

/** The memory of an instance, which never shrinks. */
interface Instance {
  readonly memoryBytes: number;
}

const MIB = 1024 * 1024;

/** Memory that the instances of one family take together. */
export class FamilyMemory {
  readonly #running = new Set<Instance>();
  #peakBytes = 0;

  enter(instance: Instance): void {
    this.#running.add(instance);
  }

  /** Returns the instance's own memory. Since instances only grow, the sum is largest when one of them ends. */
  leave(instance: Instance): number {
    let bytes = 0;
    for (const { memoryBytes } of this.#running) bytes += memoryBytes + INSTANCE_OVERHEAD_BYTES;
    this.#peakBytes = Math.max(this.#peakBytes, bytes);
    this.#running.delete(instance);
    return instance.memoryBytes;
  }

  /** The largest sum seen at the end of an instance, MiB. */
  get peakMb(): number {
    return Math.ceil(this.#peakBytes / MIB);
  }
}
