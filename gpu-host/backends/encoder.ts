import type { EncoderConfig } from '#gpu-host/models/encoder/config.ts';

/** A text encoder (embedding model or reranker) on one device. Callers make one call at a time and check inputs against `config` first. */
export interface Encoder {
  readonly config: EncoderConfig;
  /**
   * Encodes inputs in one device step. Each result has `hiddenSize` values, or one score. Results do not depend on the other inputs of the
   * batch, except for rounding.
   */
  encode(inputs: readonly EncoderInput[]): Promise<readonly Float32Array[]>;
  dispose(): Promise<void>;
}

/** A text, or a pair of texts, with its special tokens. */
export interface EncoderInput {
  readonly tokens: Uint32Array;
  /** The segment of each token: 0, or 1 for the second text of a pair. */
  readonly types: Uint8Array;
}
