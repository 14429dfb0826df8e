import { INSTANCE_OVERHEAD_BYTES } from '../pool/pool.ts';

/** An instance. Its memory never shrinks. */
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

  /** Removes an ended instance and returns its memory. The family's memory peaks just before such an end, because instances only grow. */
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
