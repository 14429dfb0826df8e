import { setImmediate } from 'node:timers/promises';
import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import { PROJECTIONS, type Projection } from '../../models/adapter.ts';
import type { DeviceAdapter } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import { type Ggml, type GgmlDevice, tooLittleMemory } from './library.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';

/** The low-rank change of one projection: `up · (down · x)`, scale included. */
export interface Change {
  readonly down: Pointer;
  readonly up: Pointer;
}

/** An adapter's matrices in a device's memory. Graphs name these matrices, so the backend drops its graphs before it frees an adapter. */
export class GgmlAdapter implements DeviceAdapter {
  readonly bytes: number;
  readonly loadMs: number;
  /** Distinguishes the graphs of adapters. */
  readonly id: number;
  readonly #changes: ReadonlyMap<string, Change>;
  #free: (() => void) | undefined;

  private constructor(
    id: number,
    bytes: number,
    loadMs: number,
    changes: ReadonlyMap<string, Change>,
    free: () => void,
  ) {
    this.id = id;
    this.bytes = bytes;
    this.loadMs = loadMs;
    this.#changes = changes;
    this.#free = free;
    unreleasedAdapters.register(this, free, this);
  }

  /**
   * Reads the adapter projection by projection, and yields the thread to other work between projections.
   * @param beforeFree called with `id` before the matrices are freed
   */
  static async read(
    ggml: Ggml,
    device: GgmlDevice,
    adapter: LoadedAdapter,
    layers: number,
    id: number,
    beforeFree: (id: number) => void,
  ): Promise<GgmlAdapter> {
    const { functions } = ggml;
    const { rank, scale } = adapter;
    const context = ggml.context(2 * layers * PROJECTIONS.length);
    const changes = new Map<string, Change>();
    const contents: { readonly tensor: Pointer; readonly values: Float32Array }[] = [];
    let loadMs = 0;
    for (let layer = 0; layer < layers; layer++) {
      for (const projection of PROJECTIONS) {
        await setImmediate();
        const startedMs = performance.now();
        const matrices = adapter.read(layer, projection);
        if (matrices !== undefined) {
          const { a, b } = matrices;
          const tensor = (columns: number, rows: number) =>
            functions.ggml_new_tensor_2d(context, CONSTANTS.GGML_TYPE_F32, columns, rows);
          const down = tensor(a.length / rank, rank);
          const up = tensor(rank, b.length / rank);
          changes.set(keyOf(layer, projection), { down, up });
          contents.push({ tensor: down, values: a }, { tensor: up, values: b.map((value) => scale * value) });
        }
        loadMs += performance.now() - startedMs;
      }
    }
    const buffer = functions.ggml_backend_alloc_ctx_tensors_from_buft(
      context,
      functions.ggml_backend_dev_buffer_type(device.handle),
    );
    if (!buffer) {
      functions.ggml_free(context);
      const needed = contents.reduce((sum, { values }) => sum + values.byteLength, 0);
      throw tooLittleMemory(ggml, device, 'the matrices of the adapter', needed);
    }
    for (const { tensor, values } of contents) functions.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
    const bytes = functions.ggml_backend_buffer_get_size(buffer);
    return new GgmlAdapter(id, bytes, loadMs, changes, () => {
      beforeFree(id);
      functions.ggml_backend_buffer_free(buffer);
      functions.ggml_free(context);
    });
  }

  /** @throws InvalidInput when another backend made the adapter */
  static of(adapter: DeviceAdapter | undefined): GgmlAdapter | undefined {
    if (adapter === undefined || adapter instanceof GgmlAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }

  change(layer: number, projection: Projection): Change | undefined {
    return this.#changes.get(keyOf(layer, projection));
  }

  release(): void {
    unreleasedAdapters.unregister(this);
    this.#free?.();
    this.#free = undefined;
  }
}

/** Frees adapters that no caller released, once V8 collects them. V8 does not see ggml's memory, so this may take long. */
const unreleasedAdapters = new FinalizationRegistry<() => void>((free) => free());

function keyOf(layer: number, projection: Projection): string {
  return `${layer} ${projection}`;
}
