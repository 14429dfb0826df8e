import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { positionBytes, SlotPositions } from '../positions.ts';
import { type Rotation, rotationsOf, turnersOf } from '../rotary.ts';

/**
 * Keys and values of all slots in one typed array, which the session reads in place. Each layer has two planes, one of keys and one of values. A
 * plane has `slotCount` rows of `kvHeads × headDim` floats, one row for each slot.
 */
export class KvPool {
  readonly planes: number;
  readonly rowSize: number;
  /** Rows of a plane: the pool's slots and the {@link nullSlot}. */
  readonly slotCount: number;
  /** The slot after the slots of all pages. It always holds zeros: a run reads it where a sequence has fewer slots than the longest one. */
  readonly nullSlot: number;
  readonly data: Float32Array;
  readonly pageBytes: number;
  /** A version number for each slot, which each write of the slot changes: a slot with an unchanged number has unchanged keys and values. */
  readonly versions: Float64Array;
  #writes = 0;
  /** The memory of `data` as bytes: pages are copied out and in bit by bit. */
  readonly #bytes: Uint8Array;
  readonly #planePageBytes: number;
  readonly #rotations: readonly (Rotation | null)[];
  readonly #config: ModelConfig;
  readonly positions: SlotPositions;
  #scratch = new Float32Array(0);

  constructor(config: ModelConfig, pageSize: number, pageCount: number) {
    this.planes = 2 * config.layers;
    this.rowSize = kvSize(config);
    this.nullSlot = pageSize * pageCount;
    this.slotCount = this.nullSlot + 1;
    this.data = new Float32Array(this.planes * this.slotCount * this.rowSize);
    this.versions = new Float64Array(this.slotCount);
    this.#bytes = new Uint8Array(this.data.buffer);
    this.#planePageBytes = pageSize * this.rowSize * Float32Array.BYTES_PER_ELEMENT;
    this.pageBytes = this.planes * this.#planePageBytes + positionBytes(config, pageSize);
    this.#rotations = rotationsOf(config);
    this.#config = config;
    this.positions = new SlotPositions(config, pageSize, pageCount);
  }

  /** Writes the keys and values of successive inputs, from `firstInput` on, to `slots`. Each plane of `newKv` has `inputs` rows. */
  store(newKv: Float32Array, inputs: number, firstInput: number, slots: Uint32Array): void {
    const { data, planes, rowSize, slotCount } = this;
    this.#markWritten(slots);
    let first = 0;
    while (first < slots.length) {
      let end = first + 1;
      while (end < slots.length && slots[end] === slots[end - 1] + 1) end++;
      for (let plane = 0; plane < planes; plane++) {
        const source = (plane * inputs + firstInput + first) * rowSize;
        data.set(
          newKv.subarray(source, source + (end - first) * rowSize),
          (plane * slotCount + slots[first]) * rowSize,
        );
      }
      first = end;
    }
  }

  /** Copies each source slot to its destination and rotates its key by its shift, in positions. Reads all sources before it writes. */
  copy(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    const { data, planes, rowSize, slotCount } = this;
    this.#markWritten(destinations);
    const needed = sources.length * rowSize;
    if (this.#scratch.length < needed) this.#scratch = new Float32Array(needed);
    const turners = shifts && turnersOf(this.#config, this.#rotations, shifts);
    for (let plane = 0; plane < planes; plane++) {
      const base = plane * slotCount;
      for (let i = 0; i < sources.length; i++) {
        const start = (base + sources[i]) * rowSize;
        const row = this.#scratch.subarray(i * rowSize, (i + 1) * rowSize);
        row.set(data.subarray(start, start + rowSize));
        // Even planes hold keys.
        if (plane % 2 === 0) turners?.[plane >> 1]?.turn(row, i);
      }
      for (let i = 0; i < sources.length; i++) {
        const row = this.#scratch.subarray(i * rowSize, (i + 1) * rowSize);
        data.set(row, (base + destinations[i]) * rowSize);
      }
    }
    this.positions.copy(sources, destinations, shifts);
  }

  /** Copies the rows of the page's slots, bit by bit, plane after plane. */
  readPage(page: number, into: Uint8Array): void {
    const bytes = this.#planePageBytes;
    for (let plane = 0; plane < this.planes; plane++) {
      const start = this.#pageStart(plane, page);
      into.set(this.#bytes.subarray(start, start + bytes), plane * bytes);
    }
    this.positions.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    const bytes = this.#planePageBytes;
    for (let plane = 0; plane < this.planes; plane++) {
      this.#bytes.set(from.subarray(plane * bytes, (plane + 1) * bytes), this.#pageStart(plane, page));
    }
    this.positions.writePage(page, from);
    const slots = bytes / (this.rowSize * Float32Array.BYTES_PER_ELEMENT);
    this.versions.fill(++this.#writes, page * slots, (page + 1) * slots);
  }

  #markWritten(slots: Uint32Array): void {
    this.#writes++;
    for (let i = 0; i < slots.length; i++) this.versions[slots[i]] = this.#writes;
  }

  #pageStart(plane: number, page: number): number {
    const planeBytes = this.slotCount * this.rowSize * Float32Array.BYTES_PER_ELEMENT;
    return plane * planeBytes + page * this.#planePageBytes;
  }
}
