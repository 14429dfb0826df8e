import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { positionBytes, SlotPositions } from '../positions.ts';
import { type KeyTurner, type Rotation, rotationsOf, turnersOf } from '../rotary.ts';
import { type Ggml, type GgmlDevice, tooLittleMemory } from './library.ts';
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
  /** Bytes of the device's memory that the pool takes. */
  readonly bytes: number;
  readonly #ggml: Ggml;
  readonly #context: Pointer;
  readonly #buffer: Pointer;
  /** Memory of the planes on the CPU. Node gets it from the system when it is first written, zeroed. */
  readonly #memory: Uint8Array | undefined;
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
    this.#context = ggml.context(planes);
    const tensors = Array.from({ length: planes }, () =>
      functions.ggml_new_tensor_2d(this.#context, ggmlType, this.#rowSize, slots + 2),
    );
    try {
      if (device.isCpu) {
        this.#memory = new Uint8Array(planes * planeBytes + ALIGNMENT);
        this.#buffer = hostBuffer(ggml, device, this.#memory, tensors, planeBytes);
      } else {
        const bufferType = functions.ggml_backend_dev_buffer_type(device.handle);
        this.#buffer = functions.ggml_backend_alloc_ctx_tensors_from_buft(this.#context, bufferType);
        if (!this.#buffer) throw tooLittleMemory(ggml, device, 'the keys and values of all pages', planes * planeBytes);
        functions.ggml_backend_buffer_clear(this.#buffer, 0);
      }
    } catch (error) {
      functions.ggml_free(this.#context);
      throw error;
    }
    this.bytes = functions.ggml_backend_buffer_get_size(this.#buffer);
    this.keys = tensors.filter((_, plane) => plane % 2 === 0);
    this.values = tensors.filter((_, plane) => plane % 2 === 1);
  }

  /** Copies each source slot to its destination and rotates its key by its shift, in positions. Reads all sources before it writes. */
  copy(sources: Uint32Array, destinations: Uint32Array, shifts: Int32Array | undefined): void {
    const { functions } = this.#ggml;
    const rowBytes = this.#rowBytes;
    const rows = new Uint8Array(sources.length * rowBytes);
    const turners = shifts && turnersOf(this.#config, this.#rotations, shifts);
    const [reads, writes] = [runsOf(sources), runsOf(destinations)];
    const rowsOf = ({ first, count }: Run) => rows.subarray(first * rowBytes, (first + count) * rowBytes);
    this.#forEachPlane((tensor, isKeys, layer) => {
      for (const run of reads)
        functions.ggml_backend_tensor_get(tensor, rowsOf(run), run.slot * rowBytes, run.count * rowBytes);
      const turner = isKeys ? turners?.[layer] : undefined;
      if (turner) this.#turn(rows, turner);
      for (const run of writes)
        functions.ggml_backend_tensor_set(tensor, rowsOf(run), run.slot * rowBytes, run.count * rowBytes);
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

/** Slots that follow each other in a list and in the pool. */
interface Run {
  /** Index of the first one in the list. */
  readonly first: number;
  readonly slot: number;
  readonly count: number;
}

/** Divides a list of slots into runs: an exchange with a GPU's memory takes about as long for many rows as for one. */
function runsOf(slots: Uint32Array): Run[] {
  const runs: Run[] = [];
  let first = 0;
  for (let i = 1; i <= slots.length; i++) {
    if (i < slots.length && slots[i] === (slots[i - 1] as number) + 1) continue;
    runs.push({ first, slot: slots[first] as number, count: i - first });
    first = i;
  }
  return runs;
}

/** Puts tensors, `planeBytes` bytes each, into an array's memory. */
function hostBuffer(
  ggml: Ggml,
  device: GgmlDevice,
  memory: Uint8Array,
  tensors: readonly Pointer[],
  planeBytes: number,
): Pointer {
  const { functions } = ggml;
  const address = ggml.addressOf(memory);
  const start = address + ((BigInt(ALIGNMENT) - (address % BigInt(ALIGNMENT))) % BigInt(ALIGNMENT));
  const bytes = tensors.length * planeBytes;
  const buffer = functions.ggml_backend_dev_buffer_from_host_ptr(device.handle, start, bytes, planeBytes);
  tensors.forEach((tensor, plane) => {
    const status = functions.ggml_backend_tensor_alloc(buffer, tensor, start + BigInt(plane * planeBytes));
    if (status === CONSTANTS.GGML_STATUS_SUCCESS) return;
    functions.ggml_backend_buffer_free(buffer);
    throw new Error(`ggml refused the pool's memory with the status ${status}`);
  });
  return buffer;
}
