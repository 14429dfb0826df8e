import type { ModelConfig } from '#gpu-host/models/config.ts';

/**
 * One model on one device: its weights and its pool of KV slots. The same tests run on every implementation.
 *
 * A backend knows physical slots only (`page × pageSize + offset`); addresses, ownership, masks of pages and which slots are filled are
 * the memory's. It keeps keys (rotated) and values per slot, nothing else. Calls are made one at a time.
 */
export interface Backend {
  readonly name: 'reference' | 'onnx' | 'cuda';
  readonly config: ModelConfig;
  readonly pageSize: number;
  /** Pages of the pool, fixed at start. */
  readonly pageCount: number;
  /** Computes all sequences in one device step. No sequence reads or writes a slot that another one of the batch writes. */
  forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]>;
  /** The `topK` most probable tokens after each of `count` states (`count × hiddenSize`, as `forward` returned them). */
  project(states: Float32Array, count: number, topK: number): Promise<TopTokens>;
  /** Copies keys and values between slots, pairwise; all sources are read before any destination is written. */
  copySlots(sources: Uint32Array, destinations: Uint32Array): void;
  dispose(): Promise<void>;
}

/** One call's inputs over one set of slots. `n` is `positions.length`. */
export interface SequenceInput {
  readonly inputs: InputRows;
  /** Position of each input, for the rotation. */
  readonly positions: Uint32Array;
  /** Slots read as context, in order. */
  readonly context: Uint32Array;
  /**
   * Visibility, `n × (context.length + n)`, 1 where input i may see that key: first the context slots, then the inputs.
   * `causal` is the common case made cheap: every context slot, and inputs j ≤ i.
   */
  readonly mask: Uint8Array | 'causal';
  /** Slot that takes each input's key and value; length `n`, or empty when they live for this call only. */
  readonly writes: Uint32Array;
  /** What is wanted of the last `rows` inputs. */
  readonly output: OutputRequest;
}

/** Token ids to embed, or rows of `hiddenSize` values to take as they are (embeds copied, or states of an earlier forward). */
export type InputRows =
  | { readonly kind: 'tokens'; readonly tokens: Uint32Array }
  | { readonly kind: 'embeds'; readonly embeds: Float32Array };

export type OutputRequest =
  | { readonly kind: 'none' }
  /** States after the final norm, `rows × hiddenSize`. */
  | { readonly kind: 'states'; readonly rows: number }
  /** The `topK` most probable tokens of each row; with `tokensOnly` without their probabilities, which saves a sum over the vocabulary. */
  | { readonly kind: 'top'; readonly rows: number; readonly topK: number; readonly tokensOnly?: boolean };

export type SequenceOutput =
  | { readonly kind: 'none' }
  | { readonly kind: 'states'; readonly states: Float32Array }
  | ({ readonly kind: 'top' } & TopTokens);

/** Row-major `rows × topK`, most probable first, equal logits by token id. `topK` is at most the size of the vocabulary. */
export interface TopTokens {
  readonly topK: number;
  readonly tokens: Uint32Array;
  /** Natural logarithms of probabilities over the whole vocabulary at temperature 1; empty for `tokensOnly`. */
  readonly logProbabilities: Float32Array;
}
