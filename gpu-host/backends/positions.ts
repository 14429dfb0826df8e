import type { ModelConfig } from '#gpu-host/models/config.ts';

/** Bytes that a page's positions take at the end of its export. */
export function positionBytes(config: ModelConfig, pageSize: number): number {
  return config.windows.length > 0 ? pageSize * Float64Array.BYTES_PER_ELEMENT : 0;
}

/** The sizes of the windows that layers have, each once. */
export function windowSizes({ windows }: ModelConfig): readonly number[] {
  return [...new Set(windows)].filter((window) => window !== null);
}

/** Position of each slot's key, for models whose layers have windows. Without windows, keeps nothing. */
export class SlotPositions {
  readonly #positions: Float64Array | null;
  readonly #pageSize: number;

  constructor(config: ModelConfig, pageSize: number, pageCount: number) {
    this.#pageSize = pageSize;
    this.#positions = config.windows.length > 0 ? new Float64Array(pageSize * pageCount) : null;
  }

  /** Notes the positions of the keys that a forward pass writes; `slots` may be empty. */
  write(slots: Uint32Array, positions: Uint32Array): void {
    if (this.#positions === null) return;
    for (const [i, slot] of slots.entries()) this.#positions[slot] = positions[i] as number;
  }

  /** Position of a slot's key; 0 without windows. */
  at(slot: number): number {
    return this.#positions?.[slot] ?? 0;
  }

  copy(sources: Uint32Array, destinations: Uint32Array, shifts: Int32Array | undefined): void {
    const all = this.#positions;
    if (all === null) return;
    const copied = Float64Array.from(sources, (slot, i) => (all[slot] as number) + (shifts?.[i] ?? 0));
    for (const [i, slot] of destinations.entries()) all[slot] = copied[i] as number;
  }

  /** Copies a page's positions into the last `positionBytes` bytes of its export. */
  readPage(page: number, into: Uint8Array): void {
    if (this.#positions === null) return;
    const own = this.#positions.subarray(page * this.#pageSize, (page + 1) * this.#pageSize);
    into.set(new Uint8Array(own.buffer, own.byteOffset, own.byteLength), into.length - own.byteLength);
  }

  writePage(page: number, from: Uint8Array): void {
    if (this.#positions === null) return;
    const bytes = this.#pageSize * Float64Array.BYTES_PER_ELEMENT;
    this.#positions.set(new Float64Array(from.slice(from.length - bytes).buffer), page * this.#pageSize);
  }
}
