import type { Backend } from '../backends/backend.ts';
import type { BatchPolicy } from '../batcher/batcher.ts';
import type { SwapOptions } from '../memory/swap/store.ts';
import type { LoadedAdapter } from '../models/adapter.ts';
import type { Fingerprint } from '../models/fingerprint.ts';
import { MAX_EMBEDS } from '../protocol/wire.ts';
import type { StepProfile } from '../telemetry/step-profile.ts';

/** One model that a host serves. */
export interface HostedModel {
  readonly name: string;
  readonly backend: Backend;
  /** Hugging Face directory, sent to runtimes for the tokenizer. */
  readonly directory: string;
  /**
   * Embedding rows, `vocabulary × hiddenSize`, needed when one forward mixes tokens with states and when a call reads a token's embed.
   * Called at most once. Without it, such calls fail with `unsupported`.
   */
  readonly embeddings?: () => Float32Array;
  /** Names of the WIT interfaces that the model offers; `TRAITS` by default. */
  readonly traits?: readonly string[];
  /** Bits of a weight as the device holds it; 32 by default. */
  readonly bits?: number;
  /** Maximum inputs of one batch; see `BatchLimits`. */
  readonly maxBatchTokens?: number;
  /** Maximum sequences of one batch. */
  readonly maxBatchCalls?: number;
  /** Times of steps that were measured at the start; none by default. */
  readonly profile?: StepProfile;
  /** Policy for when a batch leaves; adaptive by default. */
  readonly batchPolicy?: BatchPolicy;
  /** True (the default) to keep finished prefixes for later calls of the same tenant. */
  readonly prefixCache?: boolean;
  /** Bytes of host memory for pages of waiting inferlets; none by default. */
  readonly swapMemoryBytes?: number;
  /** Bytes of disk for those pages once host memory is full, in the directory of `kv` or of temporary files; none by default. */
  readonly swapDiskBytes?: number;
  /** As `SwapOptions.openFile`. */
  readonly openSwapFile?: SwapOptions['openFile'];
  /** Low-rank adapters by name; the model offers the trait `adapter` when there is one. */
  readonly adapters?: ReadonlyMap<string, LoadedAdapter>;
  /** Bytes of device memory for adapters; `DEFAULT_ADAPTER_BYTES` by default. */
  readonly adapterMemoryBytes?: number;
  /** Bytes of host memory for the embeds of images that come again; `DEFAULT_IMAGE_CACHE_BYTES` by default, none with 0. */
  readonly imageCacheBytes?: number;
  /** Directory of persistent exports and the swap file; without it exports last as long as the process. */
  readonly kv?: KvDirectory;
}

/** The directory of one model's keys and values on disk. */
export interface KvDirectory {
  readonly directory: string;
  /** Identity of the model, so that another model's files are refused. */
  readonly fingerprint: Fingerprint;
}

/** Maximum number of candidates that a distribution or a sampler sees. */
export const MAX_TOP_K = 256;

/** The WIT interfaces of every Llama-family model here. The runtime implements `grammar`, which needs only `fused`'s token mask. */
export const TRAITS = [
  'queue',
  'allocate',
  'forward',
  'input-text',
  'output-text',
  'fused',
  'penalties',
  'tokenize',
  'introspect',
  'kv-files',
] as const;

/** The traits of a model: those that it names, `adapter` when it has one, and `input-image` when its backend encodes images. */
export function traitsOf({ traits = TRAITS, adapters, backend }: HostedModel): readonly string[] {
  return [...traits, ...(adapters?.size ? ['adapter'] : []), ...(backend.images ? ['input-image'] : [])];
}

export const DEFAULT_ADAPTER_BYTES = 1024 * 1024 * 1024;
export const DEFAULT_IMAGE_CACHE_BYTES = 64 * 1024 * 1024;

/** The limits of one inferlet on one model besides its pages. */
export const EMBED_LIMITS = { maxEmbeds: MAX_EMBEDS, maxStateBytes: 64 * 1024 * 1024 } as const;

/** Maximum pending calls of one inferlet on one model, and maximum bytes of their arguments and keys. An inferlet past either bound is ended. */
export const MAX_PENDING_CALLS = 16_384;
export const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** Pending bytes that every inferlet may have, whatever the tenant's other inferlets have. */
export const LEAST_PENDING_BYTES = 256 * 1024;

export function maxTopK(backend: Backend): number {
  return Math.min(MAX_TOP_K, backend.config.vocabularySize);
}

/** Looks up rows of the embedding matrix, which is read when first needed. */
export function embeddingLookup(model: HostedModel): (token: number) => Float32Array | undefined {
  const { hiddenSize } = model.backend.config;
  let matrix: Float32Array | undefined;
  return (token) => {
    matrix ??= model.embeddings?.();
    return matrix?.subarray(token * hiddenSize, (token + 1) * hiddenSize);
  };
}
