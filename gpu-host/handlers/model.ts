import type { Backend } from '../backends/backend.ts';
import { MAX_EMBEDS } from '../protocol/wire.ts';

/** One model that a host serves. */
export interface HostedModel {
  readonly name: string;
  readonly backend: Backend;
  /** Hugging Face directory, told to runtimes for the tokenizer. */
  readonly directory: string;
  /**
   * Embedding rows, `vocabulary × hiddenSize`, needed only when one forward mixes tokens with states. Called at most once.
   * Without it such a forward is `unsupported`.
   */
  readonly embeddings?: () => Float32Array;
  /** Inputs of one batch; see `BatchLimits`. */
  readonly maxBatchTokens?: number;
  /** Sequences of one batch. */
  readonly maxBatchCalls?: number;
}

/** Largest number of candidates that a distribution or a sampler sees. */
export const MAX_TOP_K = 256;

/** The WIT interfaces that every Llama-family model offers here. */
export const TRAITS = ['queue', 'allocate', 'forward', 'input-text', 'output-text', 'fused', 'tokenize'] as const;

/** The limits of one inferlet on one model besides its pages. */
export const EMBED_LIMITS = { maxEmbeds: MAX_EMBEDS, maxStateBytes: 64 * 1024 * 1024 } as const;

/** Calls of one inferlet on one model that may wait, and the bytes of their arguments; past either it is ended. */
export const MAX_PENDING_CALLS = 16_384;
export const MAX_PENDING_BYTES = 64 * 1024 * 1024;

export function maxTopK(backend: Backend): number {
  return Math.min(MAX_TOP_K, backend.config.vocabularySize);
}
