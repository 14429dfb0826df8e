/**
 * What a backend must know of a Llama-family model, read from a Hugging Face `config.json`.
 *
 * One shape for Llama 2 and 3, SmolLM2, Qwen2 and 3, Mistral and TinyLlama: what a family lacks is off here, never undefined.
 */
export interface ModelConfig {
  /** `llama`, `mistral`, `qwen2` or `qwen3`: the `model_type` of the file. */
  readonly family: string;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Key and value heads; equal to `heads` without grouped-query attention. */
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabularySize: number;
  /** Tokens that the model was trained to see at once. */
  readonly contextLength: number;
  readonly ropeTheta: number;
  /** Llama 3 frequency scaling, or null. */
  readonly ropeScaling: Llama3RopeScaling | null;
  readonly rmsNormEpsilon: number;
  readonly tiedEmbeddings: boolean;
  /** Qwen2: biases on the q, k and v projections. */
  readonly attentionBias: boolean;
  /** Qwen3: RMS norms on each query and key head before the rotation. */
  readonly queryKeyNorm: boolean;
  readonly bosTokenId: number | null;
  readonly eosTokenIds: readonly number[];
}

/** `rope_scaling` of type `llama3`. */
export interface Llama3RopeScaling {
  readonly factor: number;
  readonly lowFrequencyFactor: number;
  readonly highFrequencyFactor: number;
  readonly originalContextLength: number;
}

/** Values of one key or value row of a slot: `kvHeads × headDim`. */
export function kvSize(config: ModelConfig): number {
  return config.kvHeads * config.headDim;
}
