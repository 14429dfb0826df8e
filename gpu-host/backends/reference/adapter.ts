import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import { PROJECTIONS, type Projection } from '#gpu-host/models/adapter-config.ts';
import type { DeviceAdapter } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { linear } from './math.ts';

/** Adds an adapter's change for `x` to the projection of `x`. */
type Change = (x: Float64Array, projected: Float64Array) => Float64Array;

/** An adapter's change to each projection of one layer. */
export type LayerChanges = Readonly<Record<Projection, Change>>;

/** The changes without an adapter: each projection stays as it is. */
export const UNCHANGED = layerOf(() => (_x, projected) => projected);

/** A low-rank adapter as the reference computes it: `projected + scale · B · (A · x)`. */
export class ReferenceAdapter implements DeviceAdapter {
  readonly bytes: number;
  readonly loadMs: number;
  readonly layers: readonly LayerChanges[];

  private constructor(bytes: number, loadMs: number, layers: readonly LayerChanges[]) {
    this.bytes = bytes;
    this.loadMs = loadMs;
    this.layers = layers;
  }

  static read(adapter: LoadedAdapter, layerCount: number): ReferenceAdapter {
    const startedMs = performance.now();
    const layers = Array.from({ length: layerCount }, (_, layer) =>
      layerOf((projection) => {
        const matrices = adapter.read(layer, projection);
        if (matrices === undefined) return UNCHANGED[projection];
        const { a, b } = matrices;
        return (x, projected) => {
          const change = linear(b, linear(a, x));
          return projected.map((value, i) => value + adapter.scale * change[i]);
        };
      }),
    );
    return new ReferenceAdapter(adapter.bytes, performance.now() - startedMs, layers);
  }

  /** @throws InvalidInput when another backend made the adapter */
  static of(adapter: DeviceAdapter | undefined): ReferenceAdapter | undefined {
    if (adapter === undefined || adapter instanceof ReferenceAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }
}

function layerOf(change: (projection: Projection) => Change): LayerChanges {
  return Object.fromEntries(PROJECTIONS.map((name) => [name, change(name)])) as Record<Projection, Change>;
}
