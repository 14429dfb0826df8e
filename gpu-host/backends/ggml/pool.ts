import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { positionBytes, SlotPositions } from '../positions.ts';
import { type KeyTurner, type Rotation, rotationsOf, turnersOf } from '../rotary.ts';
import type { Ggml, GgmlDevice } from './library.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';

/** Number format of stored keys and values. */
export type KvType = 'float32' | 'float16';

/** Alignment of the pool's planes, bytes: the width of the CPU's widest registers. */
const ALIGNMENT = 64;

/**
 * Keys and values of all slots. Each layer has a plane of keys and a plane of values, with one row of `kvHeads × headDim` values for each slot and
 * two rows more.
 */
export class KvPool {
  /** The slot after those of all pages. It always holds zeros: an input that sees nothing sees this slot, and padding reads it. */
  readonly nullSlot: number;
  /** Takes keys and values that no later step reads. */
  readonly spareSlot: number;
  readonly keys: readonly Pointer[];
  readonly values: readonly Pointer[];
  readonly pageBytes: number;
  readonly #ggml: Ggml;
  readonly #context: Pointer;
  readonly #buffer: Pointer;
  /** Memory of the planes. Node gets it from the system when it is first written, zeroed. */
  readonly #memory: Uint8Array;
  readonly #type: KvType;
  readonly #rowSize: number;
  readonly #rowBytes: number;
  readonly #planePageBytes: number;
  readonly #config: ModelConfig;
  readonly #rotations: readonly (Rotation | null)[];
  readonly positions: SlotPositions;

  constructor(
    ggml: Ggml,
    device: GgmlDevice,
    config: ModelConfig,
    pool: { pageSize: number; pageCount: number },
    type: KvType,
  ) {
    const { functions } = ggml;
    const slots = pool.pageSize * pool.pageCount;
    this.#ggml = ggml;
    this.nullSlot = slots;
    this.spareSlot = slots + 1;
    this.#type = type;
    this.#rowSize = kvSize(config);
    const ggmlType = type === 'float32' ? CONSTANTS.GGML_TYPE_F32 : CONSTANTS.GGML_TYPE_F16;
    this.#rowBytes = functions.ggml_row_size(ggmlType, this.#rowSize);
    this.#planePageBytes = pool.pageSize * this.#rowBytes;
    const planes = 2 * config.layers;
    this.pageBytes = planes * this.#planePageBytes + positionBytes(config, pool.pageSize);
    this.#config = config;
    this.#rotations = rotationsOf(config);
    this.positions = new SlotPositions(config, pool.pageSize, pool.pageCount);
    const planeBytes = Math.ceil(((slots + 2) * this.#rowBytes) / ALIGNMENT) * ALIGNMENT;
    this.#memory = new Uint8Array(planes * planeBytes + ALIGNMENT);
    const address = ggml.addressOf(this.#memory);
    const start = address + ((BigInt(ALIGNMENT) - (address % BigInt(ALIGNMENT))) % BigInt(ALIGNMENT));
    this.#context = ggml.context(planes);
    this.#buffer = functions.ggml_backend_dev_buffer_from_host_ptr(
      device.handle,
      start,
      planes * planeBytes,
      planeBytes,
    );
    const tensors = Array.from({ length: planes }, (_, plane) => {
      const tensor = functions.ggml_new_tensor_2d(this.#context, ggmlType, this.#rowSize, slots + 2);
      const status = functions.ggml_backend_tensor_alloc(this.#buffer, tensor, start + BigInt(plane * planeBytes));
      if (status !== CONSTANTS.GGML_STATUS_SUCCESS)
        throw new Error(`ggml refused the pool's memory with the status ${status}`);
      return tensor;
    });
    this.keys = tensors.filter((_, plane) => plane % 2 === 0);
    this.values = tensors.filter((_, plane) => plane % 2 === 1);
  }

  /** Copies each source slot to its destination and rotates its key by its shift, in positions. Reads all sources before it writes. */
  copy(sources: Uint32Array, destinations: Uint32Array, shifts: Int32Array | undefined): void {
    const { functions } = this.#ggml;
    const rowBytes = this.#rowBytes;
    const rows = new Uint8Array(sources.length * rowBytes);
    const turners = shifts && turnersOf(this.#config, this.#rotations, shifts);
    this.#forEachPlane((tensor, isKeys, layer) => {
      sources.forEach((slot, i) => {
        functions.ggml_backend_tensor_get(
          tensor,
          rows.subarray(i * rowBytes, (i + 1) * rowBytes),
          slot * rowBytes,
          rowBytes,
        );
      });
      const turner = isKeys ? turners?.[layer] : undefined;
      if (turner) this.#turn(rows, turner);
      destinations.forEach((slot, i) => {
        functions.ggml_backend_tensor_set(
          tensor,
          rows.subarray(i * rowBytes, (i + 1) * rowBytes),
          slot * rowBytes,
          rowBytes,
        );
      });
    });
    this.positions.copy(sources, destinations, shifts);
  }

  /** Copies the rows of the page's slots, bit by bit, plane after plane: the keys and the values of the first layer, then of the next. */
  readPage(page: number, into: Uint8Array): void {
    const bytes = this.#planePageBytes;
    let offset = 0;
    this.#forEachPlane((tensor) => {
      this.#ggml.functions.ggml_backend_tensor_get(tensor, into.subarray(offset, offset + bytes), page * bytes, bytes);
      offset += bytes;
    });
    this.positions.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    const bytes = this.#planePageBytes;
    let offset = 0;
    this.#forEachPlane((tensor) => {
      this.#ggml.functions.ggml_backend_tensor_set(tensor, from.subarray(offset, offset + bytes), page * bytes, bytes);
      offset += bytes;
    });
    this.positions.writePage(page, from);
  }

  dispose(): void {
    this.#ggml.functions.ggml_backend_buffer_free(this.#buffer);
    this.#ggml.functions.ggml_free(this.#context);
  }

  #turn(rows: Uint8Array<ArrayBuffer>, turner: KeyTurner): void {
    const stored = this.#type === 'float32' ? new Float32Array(rows.buffer) : new Float16Array(rows.buffer);
    const keys = Float32Array.from(stored);
    for (let i = 0; i * this.#rowSize < keys.length; i++)
      turner.turn(keys.subarray(i * this.#rowSize, (i + 1) * this.#rowSize), i);
    stored.set(keys);
  }

  #forEachPlane(visit: (tensor: Pointer, isKeys: boolean, layer: number) => void): void {
    this.keys.forEach((keys, layer) => {
      visit(keys, true, layer);
      visit(this.values[layer] as Pointer, false, layer);
    });
  }
}
