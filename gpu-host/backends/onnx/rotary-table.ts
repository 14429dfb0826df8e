import type { ModelConfig } from '#gpu-host/models/config.ts';
import { rotaryFrequencies } from '../rotary.ts';

/** The kept table does not grow for positions from here on. A call with such positions, up to 2³² apart, gets a table of its positions alone. */
const MAX_KEPT_POSITIONS = 1 << 17;

/** Cosines and sines, `rows × headDim / 2` each; the ones for queries are divided by √headDim, the attention's scale. */
export interface RotaryRows {
  readonly rows: number;
  readonly cos: Float32Array;
  readonly sin: Float32Array;
  readonly queryCos: Float32Array;
  readonly querySin: Float32Array;
}

/** Cosines and sines of positions, grown when a later position is first seen. */
export class RotaryTable {
  readonly #frequencies: Float64Array;
  #table: RotaryRows;

  constructor(config: ModelConfig) {
    this.#frequencies = rotaryFrequencies(config);
    this.#table = this.#compute(Uint32Array.from({ length: Math.min(config.contextLength, 4096) }, (_, i) => i));
  }

  /** The table whose row p is position p, or null when that table would be too large: see {@link tableOf}. */
  upTo(position: number): RotaryRows | null {
    if (position < this.#table.rows) return this.#table;
    if (position >= MAX_KEPT_POSITIONS) return null;
    let rows = this.#table.rows;
    while (rows <= position) rows *= 2;
    this.#table = this.#compute(Uint32Array.from({ length: rows }, (_, i) => i));
    return this.#table;
  }

  /** A table with one row per given position, in the same order. */
  tableOf(positions: Uint32Array): RotaryRows {
    return this.#compute(positions);
  }

  #compute(positions: Uint32Array): RotaryRows {
    const half = this.#frequencies.length;
    const cos = new Float32Array(positions.length * half);
    const sin = new Float32Array(positions.length * half);
    const queryCos = new Float32Array(positions.length * half);
    const querySin = new Float32Array(positions.length * half);
    const scale = 1 / Math.sqrt(2 * half);
    for (let row = 0; row < positions.length; row++) {
      for (let i = 0; i < half; i++) {
        const angle = positions[row] * this.#frequencies[i];
        const index = row * half + i;
        cos[index] = Math.cos(angle);
        sin[index] = Math.sin(angle);
        queryCos[index] = Math.cos(angle) * scale;
        querySin[index] = Math.sin(angle) * scale;
      }
    }
    return { rows: positions.length, cos, sin, queryCos, querySin };
  }
}
