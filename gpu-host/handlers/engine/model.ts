import { tmpdir } from 'node:os';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Backend } from '../../backends/backend.ts';
import type { Departure } from '../../batcher/departure.ts';
import { type SwapOptions, SwapStore } from '../../memory/swap/store.ts';
import type { LoadedAdapter } from '../../models/adapter.ts';
import type { Fingerprint } from '../../models/fingerprint.ts';
import type { MatrixRows } from '../../models/matrix-rows.ts';
import type { ThoughtSetting } from '../../models/thoughts.ts';
import { MAX_EMBEDS } from '../../protocol/wire.ts';
import type { StepProfile } from '../../telemetry/step-profile.ts';

/** One model that a host serves. */
export interface HostedModel {
  readonly name: string;
  readonly backend: Backend;
  /** Why the host chose the backend; absent when the configuration names it. */
  readonly reason?: string;
  /** Hugging Face directory, sent to runtimes for the tokenizer. */
  readonly directory: string;
  /**
   * Rows of the embedding matrix, one for each token. The host needs them when one forward mixes tokens with states or images, and when a call
   * reads a token's embed; without them, such calls fail with `unsupported`.
   */
  readonly embeddings?: MatrixRows;
  /** The marks of thoughts from the model's setting, sent to runtimes; without it, they come from the chat template. */
  readonly thoughts?: ThoughtSetting;
  /** Names of the WIT interfaces that the model offers; `TRAITS` by default. */
  readonly traits?: readonly string[];
  /** Bits of one weight in the device's memory; 32 by default. */
  readonly bits?: number;
  /** Maximum inputs of one batch; see `BatchLimits`. */
  readonly maxBatchTokens?: number;
  /** Maximum sequences of one batch. */
  readonly maxBatchCalls?: number;
  /** Times of steps by their size, measured when the host started; none by default. */
  readonly profile?: StepProfile;
  /** Decides when a batch goes to the device; adaptive by default. Benches compare others. */
  readonly departure?: () => Departure | undefined;
  /** True (the default) to keep finished prefixes for later calls of the same tenant. */
  readonly prefixCache?: boolean;
  /** Bytes of host memory for swap: pages of waiting and preempted inferlets, and of exports; 0 by default. */
  readonly swapMemoryBytes?: number;
  /** Bytes of swap on disk, in the directory of `kv` or else of temporary files, for pages that find no room in memory; 0 by default. */
  readonly swapDiskBytes?: number;
  /** As `SwapOptions.openFile`. */
  readonly openSwapFile?: SwapOptions['openFile'];
  /** Low-rank adapters by name; the model offers the trait `adapter` when there is one. */
  readonly adapters?: ReadonlyMap<string, LoadedAdapter>;
  /** Bytes of device memory for adapters; `DEFAULT_ADAPTER_BYTES` by default. */
  readonly adapterMemoryBytes?: number;
  /** Bytes of host memory that keep the embeds of images in case the images come again; `DEFAULT_IMAGE_CACHE_BYTES` by default, 0 for none. */
  readonly imageCacheBytes?: number;
  /** Directory of persistent exports and of the swap file; without this directory, exports last as long as the process. */
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

/**
 * The WIT interfaces that this host implements for every model of the Llama family. The list lacks `grammar`: the runtime implements that
 * interface with the token mask of `fused`.
 */
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

/** The limits of the embeds of one inferlet on one model. */
export const EMBED_LIMITS = { maxEmbeds: MAX_EMBEDS, maxStateBytes: 64 * 1024 * 1024 } as const;

/** Maximum pending calls of an inferlet on one model. The host ends an inferlet with more. */
export const MAX_PENDING_CALLS = 16_384;
/** Maximum bytes of the arguments and scoreboard entries of these calls. The host ends an inferlet with more. */
export const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** Pending bytes that an inferlet may always have, even when the tenant's other inferlets have used up the tenant's share of the heap. */
export const LEAST_PENDING_BYTES = 256 * 1024;

export function maxTopK(backend: Backend): number {
  return Math.min(MAX_TOP_K, backend.config.vocabularySize);
}

/** The store for a model's swapped-out pages; undefined when the model was given no room for one page. */
export function openSwap(model: HostedModel, log: Logger): SwapStore | undefined {
  const { backend, swapMemoryBytes = 0, swapDiskBytes = 0, openSwapFile, kv } = model;
  if (swapMemoryBytes + swapDiskBytes < backend.pageBytes) return undefined;
  return new SwapStore({
    pageBytes: backend.pageBytes,
    memoryBytes: swapMemoryBytes,
    diskBytes: swapDiskBytes,
    ...(backend.allocatePinned && { allocate: (bytes) => backend.allocatePinned?.(bytes) }),
    ...(backend.settlePages && { settle: () => backend.settlePages?.() }),
    ...(backend.pagesSettled && { settled: async () => backend.pagesSettled?.() }),
    directory: kv?.directory ?? tmpdir(),
    report: (problem) => log.error({ model: model.name, problem }, 'swap fails'),
    ...(openSwapFile && { openFile: openSwapFile }),
  });
}

/** Reports step graphs that the device's driver refused: their steps are slower, and nothing else shows it. */
export class RefusedGraphs {
  readonly #backend: Pick<Backend, 'graphs'>;
  #reportedCount = 0;

  constructor(backend: Pick<Backend, 'graphs'>) {
    this.#backend = backend;
  }

  /** Tells of the graphs that the driver has refused since the last check. */
  check(report: (text: string) => void): void {
    const { refused = 0, why } = this.#backend.graphs?.() ?? {};
    if (refused > this.#reportedCount)
      report(`the driver refused ${refused - this.#reportedCount} graphs, and steps are slower: ${why}`);
    this.#reportedCount = refused;
  }
}
