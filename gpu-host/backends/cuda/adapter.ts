import { setImmediate } from 'node:timers/promises';
import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { PROJECTIONS } from '../../models/adapter.ts';
import type { DeviceAdapter } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import type { AdapterMatrices, EngineHandle } from './addon.ts';

/** LOW_RANK_STEP of `native`: ranks are padded to its multiples. */
const RANK_STEP = 16;
/** Alignment of arrays in `native`, bytes. */
const ALIGNMENT = 256;
/** Rows of the largest graph of `native`. */
const GRAPH_ROWS = 128;
/** Maximum number of projections of one input: query, key and value. */
const PROJECTIONS_PER_INPUT = 3;
/** LOW_RANK_SPLIT of `native`: number of inputs that one partial sum of `A · x` covers. */
const SPLIT_INPUTS = 1024;
const SUM_BYTES = 4;
/** Bytes of a layer's entries in the table of matrices, with some to spare. */
const LAYER_BYTES = 512;

/**
 * Upper bound of the card's bytes for an adapter: ranks are padded, and each row of a step needs room for its partial sums of `A · x`.
 *
 * @param valueBytes bytes of a matrix value on the card
 */
export function mostAdapterBytes(
  { rank, targets, bytes }: LoadedAdapter,
  { layers, hiddenSize, intermediateSize, heads, headDim }: ModelConfig,
  valueBytes: number,
  maxRows: number,
): number {
  const padded = Math.ceil(rank / RANK_STEP) * RANK_STEP;
  const splits = (inputs: number) => Math.ceil(inputs / SPLIT_INPUTS);
  const sums =
    Math.max(PROJECTIONS_PER_INPUT * splits(hiddenSize), splits(heads * headDim), splits(intermediateSize)) * padded;
  const sumBytes = Math.max(maxRows, GRAPH_ROWS) * sums * SUM_BYTES;
  return (
    (bytes / 4 / rank) * padded * valueBytes +
    sumBytes +
    layers * LAYER_BYTES +
    (2 * layers * targets.length + 4) * ALIGNMENT
  );
}

/** An adapter's matrices on the card. */
export class CudaAdapter implements DeviceAdapter {
  readonly id: number;
  readonly bytes: number;
  readonly loadMs: number;
  readonly #engine: EngineHandle;

  private constructor(engine: EngineHandle, id: number, bytes: number, loadMs: number) {
    this.#engine = engine;
    this.id = id;
    this.bytes = bytes;
    this.loadMs = loadMs;
    unreleasedAdapters.register(this, { engine, id }, this);
  }

  /**
   * Reads the adapter projection by projection, and yields the thread to other work between projections.
   *
   * @param inTime bounds the wait for the card
   */
  static async load(
    engine: EngineHandle,
    adapter: LoadedAdapter,
    layers: number,
    inTime: (loading: Promise<ArrayBuffer>) => Promise<ArrayBuffer>,
  ): Promise<CudaAdapter> {
    const matrices: AdapterMatrices[] = [];
    let loadMs = 0;
    const timed = <R>(work: () => R): R => {
      const startedMs = performance.now();
      const result = work();
      loadMs += performance.now() - startedMs;
      return result;
    };
    for (let layer = 0; layer < layers; layer++) {
      for (const projection of PROJECTIONS) {
        await setImmediate();
        const pair = timed(() => adapter.read(layer, projection));
        if (!pair) continue;
        const { rank, scale } = adapter;
        const [a, b] = [pair.a, timed(() => pair.b.map((value) => scale * value))];
        matrices.push({ layer, projection, rank, columns: a.length / rank, rows: b.length / rank, a, b });
      }
    }
    // Steps can run while the engine loads the matrices.
    const [id, bytes] = new Float64Array(await inTime(engine.loadAdapter(matrices))) as unknown as [number, number];
    return new CudaAdapter(engine, id, bytes, loadMs);
  }

  /** @throws InvalidInput when another backend made the adapter */
  static of(adapter: DeviceAdapter | undefined): CudaAdapter | undefined {
    if (adapter === undefined || adapter instanceof CudaAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }

  release(): void {
    unreleasedAdapters.unregister(this);
    this.#engine.freeAdapter(this.id);
  }
}

/** Frees adapters that no caller released, once V8 collects them. V8 does not see the card's memory, so this may take long. */
const unreleasedAdapters = new FinalizationRegistry<{ readonly engine: EngineHandle; readonly id: number }>(
  ({ engine, id }) => engine.freeAdapter(id),
);
