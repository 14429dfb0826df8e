import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { positionBytes, SlotPositions } from '../positions.ts';
import { type Rotation, rotationsOf } from '../rotary.ts';
import { rotate } from './math.ts';

/** Key and value of one input in one layer, `kvHeads × headDim` each; keys are rotated. A write to a slot replaces its pair. */
export interface KeyValue {
  readonly key: Float64Array;
  readonly value: Float64Array;
}

/** Keys and values by layer and slot; unwritten slots read as zeros. */
export class SlotPool {
  readonly pageBytes: number;
  readonly #config: ModelConfig;
  readonly #pageSize: number;
  readonly #rotations: readonly (Rotation | null)[];
  readonly #positions: SlotPositions;
  readonly #layers: (KeyValue | undefined)[][];
  readonly #roundKey: (key: Float64Array) => Float64Array;

  /** @param roundKey rounds keys that a copy has rotated; the identity by default */
  constructor(
    config: ModelConfig,
    pageSize: number,
    pageCount: number,
    roundKey: (key: Float64Array) => Float64Array = (key) => key,
  ) {
    this.#roundKey = roundKey;
    this.#config = config;
    this.#pageSize = pageSize;
    this.#rotations = rotationsOf(config);
    this.#positions = new SlotPositions(config, pageSize, pageCount);
    this.#layers = Array.from({ length: config.layers }, () => new Array(pageSize * pageCount));
    this.pageBytes =
      config.layers * pageSize * 2 * kvSize(config) * Float64Array.BYTES_PER_ELEMENT + positionBytes(config, pageSize);
  }

  read(layer: number, slot: number): KeyValue {
    const size = kvSize(this.#config);
    return this.#layers[layer][slot] ?? { key: new Float64Array(size), value: new Float64Array(size) };
  }

  write(layer: number, slot: number, row: KeyValue): void {
    this.#layers[layer][slot] = row;
  }

  /** Position of each slot's key. */
  get positions(): SlotPositions {
    return this.#positions;
  }

  /** Copies slots pairwise in every layer and rotates keys by `shifts` positions; reads all sources before it writes any destination. */
  copy(sources: Uint32Array, destinations: Uint32Array, shifts: Int32Array | undefined): void {
    this.#layers.forEach((slots, layer) => {
      const copies = Array.from(sources, (slot, i) => this.#shifted(layer, this.read(layer, slot), shifts?.[i] ?? 0));
      destinations.forEach((slot, i) => {
        slots[slot] = copies[i];
      });
    });
    this.#positions.copy(sources, destinations, shifts);
  }

  /** Copies a page out layer by layer, slot by slot: key, then value, in the machine's float64. */
  readPage(page: number, into: Uint8Array): void {
    let offset = 0;
    for (const row of this.#rowsOf(page)) {
      for (const part of [row.key, row.value]) {
        into.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), offset);
        offset += part.byteLength;
      }
    }
    this.#positions.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    // Copy first: the caller's bytes may lie at any offset, and may change.
    const values = new Float64Array(new Uint8Array(from).buffer);
    const size = kvSize(this.#config);
    this.#layers.forEach((slots, layer) => {
      for (let slot = 0; slot < this.#pageSize; slot++) {
        const start = (layer * this.#pageSize + slot) * 2 * size;
        const key = values.subarray(start, start + size);
        slots[page * this.#pageSize + slot] = { key, value: values.subarray(start + size, start + 2 * size) };
      }
    });
    this.#positions.writePage(page, from);
  }

  *#rowsOf(page: number): Generator<KeyValue> {
    for (let layer = 0; layer < this.#layers.length; layer++) {
      for (let slot = 0; slot < this.#pageSize; slot++) yield this.read(layer, page * this.#pageSize + slot);
    }
  }

  #shifted(layer: number, row: KeyValue, shift: number): KeyValue {
    const rotation = this.#rotations[layer];
    if (shift === 0 || !rotation) return row;
    const key = row.key.slice();
    const { headDim } = this.#config;
    for (let start = 0; start < key.length; start += headDim) {
      rotate(key.subarray(start, start + headDim), shift, { ...rotation, scale: 1 });
    }
    return { key: this.#roundKey(key), value: row.value };
  }
}
