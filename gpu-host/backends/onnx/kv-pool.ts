import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';

/**
 * Keys and values of all slots in one typed array that the session reads in place: a plane of keys and a plane of values per layer,
 * `slotCount` rows of `kvHeads × headDim` each.
 */
export class KvPool {
  readonly planes: number;
  readonly rowSize: number;
  /** Rows of a plane: the pool's slots and the {@link nullSlot}. */
  readonly slotCount: number;
  /** A slot past the last that always holds zeros; it stands where a shorter sequence of a batch has nothing. */
  readonly nullSlot: number;
  readonly data: Float32Array;
  #scratch = new Float32Array(0);

  constructor(config: ModelConfig, slots: number) {
    this.planes = 2 * config.layers;
    this.rowSize = kvSize(config);
    this.nullSlot = slots;
    this.slotCount = slots + 1;
    this.data = new Float32Array(this.planes * this.slotCount * this.rowSize);
  }

  /** Writes new keys and values: of each plane of `fresh`, `inputs × rowSize`, the inputs from `firstInput` on, one per slot. */
  store(fresh: Float32Array, inputs: number, firstInput: number, slots: Uint32Array): void {
    const { data, planes, rowSize, slotCount } = this;
    let first = 0;
    while (first < slots.length) {
      let end = first + 1;
      while (end < slots.length && slots[end] === slots[end - 1] + 1) end++;
      for (let plane = 0; plane < planes; plane++) {
        const source = (plane * inputs + firstInput + first) * rowSize;
        data.set(
          fresh.subarray(source, source + (end - first) * rowSize),
          (plane * slotCount + slots[first]) * rowSize,
        );
      }
      first = end;
    }
  }

  /** Copies rows pairwise in every plane; all sources are read before any destination is written. */
  copy(sources: Uint32Array, destinations: Uint32Array): void {
    const { data, planes, rowSize, slotCount } = this;
    const needed = sources.length * rowSize;
    if (this.#scratch.length < needed) this.#scratch = new Float32Array(needed);
    for (let plane = 0; plane < planes; plane++) {
      const base = plane * slotCount;
      for (let i = 0; i < sources.length; i++) {
        const start = (base + sources[i]) * rowSize;
        this.#scratch.set(data.subarray(start, start + rowSize), i * rowSize);
      }
      for (let i = 0; i < sources.length; i++) {
        const row = this.#scratch.subarray(i * rowSize, (i + 1) * rowSize);
        data.set(row, (base + destinations[i]) * rowSize);
      }
    }
  }
}
