import { setImmediate } from 'node:timers/promises';
import { Tensor } from 'onnxruntime-node';
import type { LoadedAdapter, LowRank } from '#gpu-host/models/adapter.ts';
import { PROJECTIONS, type Projection } from '#gpu-host/models/adapter-config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { DeviceAdapter } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { type LinearLayer, layerLinears } from './weights.ts';

/** Graph inputs of an adapter for one multiplication: `down` float32 [rank, columns] and `up` float32 [rank, rows], scale included. */
export function adapterInputs({ name }: LinearLayer): { readonly down: string; readonly up: string } {
  return { down: `${name}:adapter-down`, up: `${name}:adapter-up` };
}

/** An adapter as the inputs of the graph that was built for adapters. */
export class OnnxAdapter implements DeviceAdapter {
  readonly bytes: number;
  readonly feeds: Readonly<Record<string, Tensor>>;

  private constructor(feeds: Readonly<Record<string, Tensor>>) {
    this.feeds = feeds;
    this.bytes = Object.values(feeds).reduce((sum, { size }) => sum + 4 * size, 0);
  }

  /** Reads it layer by layer, and lets others have the thread in between. */
  static async read(adapter: LoadedAdapter, model: LoadedModel): Promise<OnnxAdapter> {
    const feeds: Record<string, Tensor> = {};
    for (let layer = 0; layer < model.config.layers; layer++) {
      await setImmediate();
      for (const linear of Object.values(layerLinears(model.config, layer, 32))) {
        const parts = linear.parts.map((part) => ({
          rows: model.tensors.info(part).shape[0] ?? 0,
          change: adapter.read(layer, projectionOf(part)),
        }));
        const { down, up } = adapterInputs(linear);
        const rank = adapter.rank * parts.filter(({ change }) => change !== undefined).length;
        const stacked = stack(parts, rank, linear, adapter);
        feeds[down] = new Tensor('float32', stacked.down, [rank, linear.columns]);
        feeds[up] = new Tensor('float32', stacked.up, [rank, linear.rows]);
      }
    }
    return new OnnxAdapter(feeds);
  }

  /** Throws `InvalidInput` for another backend's. */
  static of(adapter: DeviceAdapter | undefined): OnnxAdapter | undefined {
    if (adapter === undefined || adapter instanceof OnnxAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }
}

/**
 * The matrices of projections that are multiplied as one, as one pair: every `A` below the last, and every `B`, transposed, in the columns of
 * its own projection. The zeros beside them cost less than a multiplication for each projection.
 */
function stack(
  parts: readonly { readonly rows: number; readonly change: LowRank | undefined }[],
  rank: number,
  { rows, columns }: LinearLayer,
  adapter: Pick<LoadedAdapter, 'rank' | 'scale'>,
): { readonly down: Float32Array; readonly up: Float32Array } {
  const down = new Float32Array(rank * columns);
  const up = new Float32Array(rank * rows);
  let first = 0;
  let firstRow = 0;
  for (const { rows: own, change } of parts) {
    if (change !== undefined) {
      down.set(change.a, first * columns);
      for (let row = 0; row < own; row++) {
        for (let k = 0; k < adapter.rank; k++) {
          up[(first + k) * rows + firstRow + row] = adapter.scale * change.b[row * adapter.rank + k];
        }
      }
      first += adapter.rank;
    }
    firstRow += own;
  }
  return { down, up };
}

/** The projection whose weights a tensor holds. */
function projectionOf(part: string): Projection {
  const name = PROJECTIONS.find((projection) => part.endsWith(`.${projection}.weight`));
  if (name === undefined) throw new TypeError(`${part} is no projection's tensor.`);
  return name;
}
