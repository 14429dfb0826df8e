import { readValues, readValuesAhead, rowOf, type TensorInfo } from './tensors.ts';

/** Default bytes of kept rows: 1,024 rows of 4,096 values, more than a step has inputs. */
const DEFAULT_KEPT_BYTES = 16 * 1024 * 1024;
/** Rows that are read from the disk at once, each with its parts. */
const READS = 8;

/**
 * Rows of one matrix in a model's files, as 32-bit floats. A row is read when it is needed, because the whole matrix of a large model has
 * gigabytes. The rows that were used last are kept, up to a bound.
 */
export class MatrixRows {
  readonly #info: TensorInfo;
  readonly #maxKept: number;
  /** The row that was used last comes last. */
  readonly #kept = new Map<number, Float32Array>();

  /** @param keptBytes bound of the kept rows; at least one row is kept */
  constructor(info: TensorInfo, keptBytes = DEFAULT_KEPT_BYTES) {
    this.#info = info;
    this.#maxKept = Math.max(1, Math.floor(keptBytes / (4 * (info.shape[1] ?? 1))));
  }

  /** Bytes of the kept rows. */
  get keptBytes(): number {
    let bytes = 0;
    for (const { byteLength } of this.#kept.values()) bytes += byteLength;
    return bytes;
  }

  /**
   * The values of a row, which the caller must not change. Reads a row that is not kept, and waits for the disk: call {@link prefetch} before.
   * @throws ModelError `malformed-weights` or `missing-file` when the file was changed or removed since the model was opened
   */
  row(index: number): Float32Array {
    const kept = this.#kept.get(index);
    if (kept) return this.#keep(index, kept);
    return this.#keep(index, readValues(rowOf(this.#info, index)));
  }

  /**
   * Reads the rows that are not kept, as many as fit, while the thread is free. Undefined when there is nothing to read. The promise never
   * rejects: `row` tries a failed read again, and throws.
   */
  prefetch(indices: Iterable<number>): Promise<void> | undefined {
    const missing = new Set<number>();
    for (const index of indices) {
      if (missing.size === this.#maxKept) break;
      if (!this.#kept.has(index)) missing.add(index);
    }
    return missing.size === 0 ? undefined : this.#read([...missing]);
  }

  async #read(indices: readonly number[]): Promise<void> {
    let next = 0;
    const reader = async (): Promise<void> => {
      while (next < indices.length) {
        const index = indices[next++] as number;
        this.#keep(index, await readValuesAhead(rowOf(this.#info, index)));
      }
    };
    await Promise.allSettled(Array.from({ length: READS }, reader));
  }

  #keep(index: number, values: Float32Array): Float32Array {
    this.#kept.delete(index);
    this.#kept.set(index, values);
    if (this.#kept.size > this.#maxKept) {
      for (const oldest of this.#kept.keys()) {
        this.#kept.delete(oldest);
        break;
      }
    }
    return values;
  }
}
