import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import type { GraphReport } from '../backend.ts';
import { InvalidInput } from '../check.ts';
import type { TensorPlace } from './weights.ts';

/** Exports of the addon (`native/addon`). Its errors have a `code`: see `fromAddon`. */
export interface CudaAddon {
  /** True when the addon computes on the CPU, for tests. */
  readonly emulated: boolean;
  readonly Engine: new (options: EngineOptions, tensors: readonly TensorPlace[]) => EngineHandle;
  /** The cards of this machine; empty without a driver. */
  devices(): readonly CudaDevice[];
  /** Allocates host memory that the device reads and writes directly; undefined when none is left. */
  allocatePinned(bytes: number): ArrayBuffer | undefined;
}

export interface CudaDevice {
  readonly name: string;
  readonly memoryBytes: number;
  readonly multiprocessors: number;
  /** Such as `9.0`. */
  readonly capability: string;
  /** True when the addon was built for such cards. */
  readonly usable: boolean;
  /** CUDA version that the driver supports, as `versionText` reads it. */
  readonly driverVersion: number;
  /** CUDA version of the runtime, as `versionText` reads it. */
  readonly runtimeVersion: number;
}

/**
 * Width of weights, activations, keys and values on the device. `int8`, `fp8` (e4m3) and `int4` are `bf16` with narrower product weights, so a
 * step reads a half or a quarter of the weights' bytes. The largest weight of each row (with 4 bits: of each group of 128) sets the scale. With
 * `int4` the head has 8 bits. `float32` is for finding faults: plain kernels, twice the memory.
 */
export type Precision = 'bf16' | 'int8' | 'fp8' | 'int4' | 'float32';

/**
 * Format of kept keys and values, when it differs from the computation's. `fp8`: e4m3 with a scale for each slot and head, with bf16
 * activations. Pages take half the bytes, and attention reads half the bytes.
 */
export type KvPrecision = 'fp8';

/** `EngineOptions` of `native/engine/engine.h`. */
export interface EngineOptions {
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabulary: number;
  readonly rmsEpsilon: number;
  readonly tiedEmbeddings: boolean;
  readonly attentionBias: boolean;
  readonly queryKeyNorm: boolean;
  /** Number of rotations; `frequencies` and `rotationScales` have `headDim / 2` values for each. */
  readonly rotations: number;
  readonly frequencies: Float64Array;
  /** Factors of rotated pairs; 1 by default. */
  readonly rotationScales: Float64Array | undefined;
  /** Rotation of each layer; the first by default. */
  readonly rotationOf: Int32Array | undefined;
  /** Order of the values of a head of queries or keys on the device; that of the weights by default. */
  readonly headOrder: Int32Array | undefined;
  /** Window of each layer, 0 for none; none by default. */
  readonly windows: Int32Array | undefined;
  readonly attentionScale: number;
  /** 0 for none, like `logitSoftcap`. */
  readonly attentionSoftcap: number;
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  readonly logitSoftcap: number;
  readonly outputBias: boolean;
  /** True when `queryKeyNorm` covers whole rows. */
  readonly rowNorms: boolean;
  readonly norms: 'before' | 'after' | 'around';
  readonly normOffset: number;
  /** True for GELU in place of SiLU. */
  readonly gelu: boolean;
  readonly device: number;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly maxRows: number;
  readonly maxSequences: number;
  readonly scratchSlots: number;
  readonly memoryBytes: number;
  readonly reserveBytes: number;
  readonly precision: Precision;
  readonly kv: KvPrecision | 'as computed';
  readonly graphs: boolean;
  readonly dependentLaunch: boolean;
  readonly sharedPrefixes: boolean;
  readonly cublas: boolean;
}

/** One model on one card. Every call that returns no promise completes before it returns. */
export interface EngineHandle {
  /** Starts a step and resolves with its results (`readResults`). Copies `words` before it returns. At most two steps run at once. */
  submit(words: Uint32Array): Promise<ArrayBuffer>;
  /** Resolves with `count * topK` tokens, then as many log-probabilities. Copies its arguments, as `score` does. */
  project(states: Float32Array, count: number, topK: number): Promise<ArrayBuffer>;
  /** Tokens from `first[r]` up to `first[r + 1]` belong to state r. Resolves with their log-probabilities, then `count` entropies. */
  score(states: Float32Array, count: number, tokens: Uint32Array, first: Int32Array): Promise<ArrayBuffer>;
  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts: Int32Array | undefined): void;
  /** `tableSlots`: number of slots that the device's slot tables hold. */
  pages(): { readonly count: number; readonly bytes: number; readonly tableSlots: number };
  /**
   * @param queued true to only queue the copy, if the memory is from `allocatePinned`. The device runs later calls after the copy. The caller
   * keeps the memory, and lets only queued copies use it, until `settlePages` returns.
   */
  readPage(page: number, into: Uint8Array, queued?: boolean): void;
  writePage(page: number, from: Uint8Array, queued?: boolean): void;
  /** Waits for all queued copies. */
  settlePages(): void;
  /** Resolves with an empty buffer when the copies that were queued before have ended. At most two waits may run at once. */
  pagesSettled(): Promise<ArrayBuffer>;
  /**
   * Converts and copies an adapter on a thread of its own; the matrices must not change meanwhile. Resolves with two 64-bit floats: the adapter's
   * number in the words of a batch, which is above 0, and its bytes on the device.
   */
  loadAdapter(matrices: readonly AdapterMatrices[]): Promise<ArrayBuffer>;
  /** Frees an adapter's memory as soon as no running step uses the adapter. Does nothing for a freed adapter. */
  freeAdapter(id: number): void;
  memory(): MemoryReport;
  graphs(): GraphReport;
  /** True if the engine found cuBLASLt and may use it. */
  hasCublas(): boolean;
  /** Waits for running steps and frees everything; does nothing the second time. */
  dispose(): void;
}

/** An adapter's matrices for one projection. `a` is rank × columns; `b` is rows × rank, with the adapter's scale multiplied in. */
export interface AdapterMatrices {
  readonly layer: number;
  readonly projection: string;
  readonly rank: number;
  readonly columns: number;
  readonly rows: number;
  readonly a: Float32Array;
  readonly b: Float32Array;
}

/** Bytes on the device. */
interface MemoryReport {
  readonly weights: number;
  readonly pool: number;
  readonly scratch: number;
  readonly total: number;
  readonly free: number;
  readonly pagesThatFit: number;
}

/** A version that CUDA encodes: 13000 is 13.0; 0 or undefined is unknown. */
export function versionText(version = 0): string {
  return version === 0 ? 'unknown' : `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

/** File to which `npm run build:cuda` writes the addon. */
export const ADDON_FILE = join(import.meta.dirname, 'dist', 'pie-cuda.node');

/**
 * Loads the addon from the file `addonPath`: by default the file of `PIE_CUDA_ADDON`, or else the built addon.
 * @throws CudaError `not-built`
 */
export function loadAddon(addonPath = process.env.PIE_CUDA_ADDON || ADDON_FILE): CudaAddon {
  const file = resolve(addonPath);
  if (!existsSync(file)) {
    if (addonPath === process.env.PIE_CUDA_ADDON)
      throw new CudaError('not-built', `PIE_CUDA_ADDON names ${file}, which is not there`);
    throw new CudaError(
      'not-built',
      `the CUDA backend was not built: there is no ${file}. Run "npm run build:cuda" in a clone of Pie, or name an addon from elsewhere by PIE_CUDA_ADDON`,
    );
  }
  try {
    return createRequire(import.meta.url)(file) as CudaAddon;
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new CudaError('not-built', `${file} cannot be loaded: ${text}. Run "npm run build:cuda" again`, { cause });
  }
}

/** Reasons why a model cannot start on a card, or stops there. */
type CudaErrorCode =
  /** The addon does not exist, or cannot be loaded. */
  | 'not-built'
  /** No such card, or no driver. */
  | 'no-device'
  /** The device has too little memory; the message states how much it needs. */
  | 'out-of-memory'
  /** The card failed: this process can no longer compute on it. */
  | 'device-lost'
  /** A fault of the addon itself. */
  | 'internal'
  /** The backend was disposed of. */
  | 'disposed';

export class CudaError extends Error {
  override readonly name = 'CudaError';
  readonly code: CudaErrorCode;

  constructor(code: CudaErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Converts an addon's error to a `CudaError`, or to `InvalidInput` for input that it refused; returns other errors unchanged. */
export function fromAddon(caught: unknown): unknown {
  if (!(caught instanceof Error) || !('code' in caught)) return caught;
  const { message, code } = caught;
  switch (code) {
    case 'invalid':
      return new InvalidInput(message);
    case 'cuda':
      return new CudaError('device-lost', message, { cause: caught });
    case 'no-device':
    case 'internal':
    case 'out-of-memory':
    case 'disposed':
      return new CudaError(code, message, { cause: caught });
    default:
      return caught;
  }
}
