import { setImmediate } from 'node:timers/promises';
import type { LoadedAdapter, LowRank } from '#gpu-host/models/adapter.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { PROJECTIONS, type Projection } from '../../models/adapter.ts';
import type { DeviceAdapter } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { Tensor } from './library.ts';
import { type LinearLayer, layerLinears } from './weights.ts';

/** Graph inputs of an adapter for one multiplication: `down` float32 [rank, columns] and `up` float32 [rank, rows], scale included. */
export function adapterInputs({ name }: LinearLayer): { readonly down: string; readonly up: string } {
  return { down: `${name}:adapter-down`, up: `${name}:adapter-up` };
}

/** An adapter as the inputs of the graph that was built for adapters. */
export class OnnxAdapter implements DeviceAdapter {
  readonly bytes: number;
  readonly loadMs: number;
  readonly feeds: Readonly<Record<string, Tensor>>;

  private constructor(feeds: Readonly<Record<string, Tensor>>, loadMs: number) {
    this.feeds = feeds;
    this.loadMs = loadMs;
    this.bytes = Object.values(feeds).reduce((sum, { size }) => sum + 4 * size, 0);
  }

  /** Reads the adapter projection by projection, and yields the thread to other work between projections. */
  static async read(adapter: LoadedAdapter, model: LoadedModel): Promise<OnnxAdapter> {
    const feeds: Record<string, Tensor> = {};
    let loadMs = 0;
    for (let layer = 0; layer < model.config.layers; layer++) {
      for (const linear of Object.values(layerLinears(model.config, layer, 32))) {
        const changedParts = linear.parts.filter((part) => adapter.targets.includes(projectionOf(part)));
        const stack = new Stack(linear, adapter.rank * changedParts.length);
        let firstRow = 0;
        for (const part of linear.parts) {
          await setImmediate();
          const startedMs = performance.now();
          const change = adapter.read(layer, projectionOf(part));
          if (change) stack.add(change, adapter, firstRow);
          loadMs += performance.now() - startedMs;
          firstRow += model.tensors.info(part).shape[0] ?? 0;
        }
        const { down, up } = adapterInputs(linear);
        feeds[down] = new Tensor('float32', stack.down, [stack.rank, linear.columns]);
        feeds[up] = new Tensor('float32', stack.up, [stack.rank, linear.rows]);
      }
    }
    return new OnnxAdapter(feeds, loadMs);
  }

  /** @throws InvalidInput when another backend made the adapter */
  static of(adapter: DeviceAdapter | undefined): OnnxAdapter | undefined {
    if (adapter === undefined || adapter instanceof OnnxAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }
}

/**
 * The pair of matrices for projections that the graph multiplies as one. `down` has the projections' `A` matrices, one below the other. `up`
 * has each `B`, transposed, in the columns of its projection; the other columns of these rows are zeros. They cost less than separate
 * multiplications would.
 */
class Stack {
  readonly rank: number;
  readonly down: Float32Array;
  readonly up: Float32Array;
  readonly #rows: number;
  readonly #columns: number;
  #nextRank = 0;

  constructor({ rows, columns }: LinearLayer, rank: number) {
    this.rank = rank;
    this.down = new Float32Array(rank * columns);
    this.up = new Float32Array(rank * rows);
    this.#rows = rows;
    this.#columns = columns;
  }

  /** Adds the matrices of the projection whose outputs begin at `firstRow`. */
  add({ a, b }: LowRank, { rank, scale }: Pick<LoadedAdapter, 'rank' | 'scale'>, firstRow: number): void {
    this.down.set(a, this.#nextRank * this.#columns);
    const { up } = this;
    const projectionRows = b.length / rank;
    for (let k = 0; k < rank; k++) {
      const to = (this.#nextRank + k) * this.#rows + firstRow;
      for (let row = 0, from = k; row < projectionRows; row++, from += rank) up[to + row] = scale * (b[from] as number);
    }
    this.#nextRank += rank;
  }
}

/** The projection whose weights a tensor holds. */
function projectionOf(part: string): Projection {
  const name = PROJECTIONS.find((projection) => part.endsWith(`.${projection}.weight`));
  if (name === undefined) throw new TypeError(`${part} is not a tensor of a projection.`);
  return name;
}
