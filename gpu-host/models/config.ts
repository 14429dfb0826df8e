import { z } from 'zod';
import { issueText, ModelError, type ModelErrorCode } from './errors.ts';
import type { Family } from './families/family.ts';
import { familyOfType, MODEL_TYPES } from './families/index.ts';
import { LLAVA, splitLlava } from './vision/llava.ts';

/**
 * The table of a model's traits, which all backends read: sizes, and what the model computes. Read from a Hugging Face `config.json`.
 *
 * One shape for every family: a trait that a family lacks is off here, never undefined.
 */
export interface ModelConfig extends Traits {
  /** The `model_type` of the file, such as `llama` or `qwen3_moe`. */
  readonly family: string;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Key and value heads; equal to `heads` without grouped-query attention. */
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabularySize: number;
  /** Maximum tokens of a context, from the model's training. */
  readonly contextLength: number;
  readonly ropeTheta: number;
  readonly ropeScaling: RopeScaling | null;
  readonly rmsNormEpsilon: number;
  readonly tiedEmbeddings: boolean;
  readonly bosTokenId: number | null;
  readonly eosTokenIds: readonly number[];
}

/** The traits in which models differ from a plain Llama decoder. */
export interface Traits {
  /** Biases on the q, k and v projections. */
  readonly attentionBias: boolean;
  /** A bias on the output projection of attention. */
  readonly outputBias: boolean;
  /** RMS norms on queries and keys before the rotation. */
  readonly queryKeyNorm: boolean;
  /** Values that one such norm covers: those of a head, or the whole row of all heads. */
  readonly queryKeyNormSpan: 'head' | 'row';
  /** Elements of a head that are rotated, the first ones. */
  readonly rotaryDim: number;
  /** Elements that turn together: i and i + rotaryDim / 2, or 2i and 2i + 1. */
  readonly rotaryPairs: 'halves' | 'neighbours';
  /** Theta of the layers with a window, whose rotation is not scaled; null when they rotate as the others do. */
  readonly localRopeTheta: number | null;
  /** Layers whose queries and keys are not rotated. */
  readonly unrotatedLayers: readonly number[];
  /**
   * Window of each layer: a query at position p sees keys at positions above p − window only. Null for layers without a window; an empty list when
   * no layer has one. A window that all layers have is not here: it bounds `contextLength` instead.
   */
  readonly windows: readonly (number | null)[];
  /** Scores are multiplied by this number; `1 / √headDim` for most models. */
  readonly attentionScale: number;
  /** Scores become `cap × tanh(score / cap)` before the mask. */
  readonly attentionSoftcap: number | null;
  /** Each head has a learned score that takes part in the softmax and has no value. */
  readonly sinks: boolean;
  /** RMS norms stand before attention and feed-forward, after them, or both; always before the addition to the residual stream. */
  readonly norms: 'before' | 'after' | 'around';
  /** Added to the weights of norms in Hugging Face's checkpoints: 1 where these store differences from 1. */
  readonly normOffset: 0 | 1;
  /** Function of the gate: `x × sigmoid(x)`, GELU with tanh, or gpt-oss's clamped SwiGLU, which changes the other factor too. */
  readonly activation: 'silu' | 'gelu' | 'clamped';
  /** Bound of the inputs of `clamped`. */
  readonly activationLimit: number;
  /** A mixture of experts in place of each layer's feed-forward network. */
  readonly experts: Experts | null;
  /** Embeddings of tokens, results of attention and feed-forward, and logits are multiplied by these. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Logits become `cap × tanh(logit / cap)`. */
  readonly logitSoftcap: number | null;
}

/** A mixture of experts: a router chooses `used` of `count` feed-forward networks for each token, and adds their results by weight. */
export interface Experts {
  readonly count: number;
  readonly used: number;
  /** Intermediate size of each expert. */
  readonly size: number;
  /** The softmax that gives the weights: over all experts, or over the chosen ones (their weights then add up to one). */
  readonly router: 'all' | 'chosen';
  /** Biases on the router and on the experts' projections. */
  readonly biases: boolean;
}

export type RopeScaling = Llama3RopeScaling | LinearRopeScaling | YarnRopeScaling | LongRopeScaling;

/** `rope_scaling` of type `llama3`. */
export interface Llama3RopeScaling {
  readonly type: 'llama3';
  readonly factor: number;
  readonly lowFrequencyFactor: number;
  readonly highFrequencyFactor: number;
  readonly originalContextLength: number;
}

/** `rope_scaling` of type `linear`: positions are divided by `factor`. */
export interface LinearRopeScaling {
  readonly type: 'linear';
  readonly factor: number;
}

/** `rope_scaling` of type `yarn` (Peng et al., 2023). */
export interface YarnRopeScaling {
  readonly type: 'yarn';
  readonly factor: number;
  /** Turns within the original context from which on a pair is not scaled, and up to which it is scaled wholly. */
  readonly betaFast: number;
  readonly betaSlow: number;
  readonly originalContextLength: number;
  /** True when the pairs at which scaling begins and ends are rounded to whole numbers. */
  readonly truncates: boolean;
  /** Factor of rotated queries and of rotated keys. */
  readonly attentionFactor: number;
}

/** `rope_scaling` of type `longrope` (Ding et al., 2024): a divisor for each pair. */
export interface LongRopeScaling {
  readonly type: 'longrope';
  readonly divisors: readonly number[];
  readonly attentionFactor: number;
}

/** The traits of a plain Llama decoder, but for those that depend on the head's size. */
export const PLAIN_TRAITS = {
  attentionBias: false,
  outputBias: false,
  queryKeyNorm: false,
  queryKeyNormSpan: 'head',
  rotaryPairs: 'halves',
  localRopeTheta: null,
  unrotatedLayers: [],
  windows: [],
  attentionSoftcap: null,
  sinks: false,
  norms: 'before',
  normOffset: 0,
  activation: 'silu',
  activationLimit: 0,
  experts: null,
  embeddingScale: 1,
  residualScale: 1,
  logitScale: 1,
  logitSoftcap: null,
} as const satisfies Omit<Traits, 'rotaryDim' | 'attentionScale'>;

/** The traits of a plain Llama decoder with heads of this size. */
export function plainTraits(headDim: number): Traits {
  return { ...PLAIN_TRAITS, rotaryDim: headDim, attentionScale: 1 / Math.sqrt(headDim) };
}

/** Number of values in one key row or one value row of a slot: `kvHeads × headDim`. */
export function kvSize(config: ModelConfig): number {
  return config.kvHeads * config.headDim;
}

/** Fewest pages of a pool by default. */
const LEAST_DEFAULT_PAGES = 1024;
/** Part of the machine's memory that a default of more pages may take. */
const DEFAULT_POOL_PART = 1 / 16;

/**
 * Pages of a pool in the machine's memory for which no setting gives a number: enough for one whole context of the model and an eighth more, so that
 * other inferlets find room beside a full one. A model with a long context gets as many as a sixteenth of the memory holds, and at least 1,024.
 *
 * @param memoryBytes memory of the machine
 */
export function defaultPages(config: ModelConfig, pageSize: number, memoryBytes: number): number {
  const wanted = Math.ceil((config.contextLength / pageSize) * (9 / 8));
  const pageBytes = pageSize * 2 * config.layers * kvSize(config) * Float32Array.BYTES_PER_ELEMENT;
  return Math.max(LEAST_DEFAULT_PAGES, Math.min(wanted, Math.floor((memoryBytes * DEFAULT_POOL_PART) / pageBytes)));
}

// These bounds are far above any real model. They keep products of sizes exact, and keep a hostile file from claiming absurd memory.
const size = z
  .int()
  .min(1)
  .max(1 << 24);
const tokenId = z
  .int()
  .min(0)
  .max(1 << 24);
/** Most experts of all layers together: each has tensors of its own. Real models have up to 30,000. */
const MOST_EXPERTS = 1 << 17;
const factor = z.number().positive().max(1e9);
const divisors = z.array(factor).max(4096);

const ropeSchema = z.looseObject({
  rope_type: z.string().nullish(),
  type: z.string().nullish(),
  rope_theta: z.number().positive().nullish(),
  factor: factor.nullish(),
  low_freq_factor: factor.nullish(),
  high_freq_factor: factor.nullish(),
  original_max_position_embeddings: size.nullish(),
  attention_factor: factor.nullish(),
  beta_fast: factor.nullish(),
  beta_slow: factor.nullish(),
  truncate: z.boolean().nullish(),
  mscale: z.number().nullish(),
  mscale_all_dim: z.number().nullish(),
  short_factor: divisors.nullish(),
  long_factor: divisors.nullish(),
  partial_rotary_factor: z.number().gt(0).max(1).nullish(),
});
/** With a rotation for each type of layer, transformers 5 has one of these objects for each. */
const ropesSchema = ropeSchema.extend({
  full_attention: ropeSchema.nullish(),
  sliding_attention: ropeSchema.nullish(),
});

const configSchema = z.looseObject({
  model_type: z.string(),
  architectures: z.array(z.string()).max(64).nullish(),
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size.max(1024),
  num_attention_heads: size.max(4096),
  num_key_value_heads: size.max(4096).nullish(),
  head_dim: size.max(4096).nullish(),
  vocab_size: size,
  max_position_embeddings: size,
  original_max_position_embeddings: size.nullish(),
  rope_theta: z.number().positive().nullish(),
  rope_scaling: ropeSchema.nullish(),
  // transformers 5 gathers theta and scaling here.
  rope_parameters: ropesSchema.nullish(),
  rms_norm_eps: z.number().positive().max(1),
  tie_word_embeddings: z.boolean().nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  hidden_act: z.string().nullish(),
  sliding_window: z.int().min(1).nullish(),
  use_sliding_window: z.boolean().nullish(),
  max_window_layers: z.int().min(0).nullish(),
  layer_types: z.array(z.string()).max(1024).nullish(),
  partial_rotary_factor: z.number().gt(0).max(1).nullish(),
  rope_interleaved: z.boolean().nullish(),
  quantization_config: z.unknown().optional(),
  bos_token_id: tokenId.nullish(),
  eos_token_id: z.union([tokenId, z.array(tokenId).max(64)]).nullish(),
});

/** A `config.json` with the fields that all families share checked; families check their own. */
export type ConfigFile = z.infer<typeof configSchema>;

/** Types of models whose text model lies in `text_config`; Pie serves the text alone. */
const NESTED: Readonly<Record<string, string>> = { gemma3: 'gemma3_text', mistral3: 'mistral' };

/**
 * Reads the parsed JSON of a `config.json`, and of an optional `generation_config.json`, which may name more end tokens. Reads only the text
 * model's part of a `config.json` with a vision tower.
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-model` when Pie does not know the model's computation.
 */
export function parseConfig(json: unknown, generation: unknown = {}): ModelConfig {
  const text = splitLlava(json)?.text ?? nestedText(json) ?? json;
  const family = familyOf(text);
  const { model_type: type } = text as { model_type: string };
  const parsed = configSchema.safeParse({ ...family.types[type], ...present(text as Record<string, unknown>) });
  if (!parsed.success) throw malformed('config.json', parsed.error);
  const file = parsed.data;
  refuseUnsupported(file);

  const heads = file.num_attention_heads;
  const kvHeads = file.num_key_value_heads ?? heads;
  const headDim = file.head_dim ?? file.hidden_size / heads;
  if (heads % kvHeads !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: "num_key_value_heads": ${heads} heads cannot share ${kvHeads} key and value heads`,
    );
  }
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: "head_dim": a head of ${headDim} values cannot be rotated in pairs`,
    );
  }
  const traits = { ...plainTraits(headDim), ...family.traits?.(file) };
  if (file.attention_bias && !traits.attentionBias)
    throw new ModelError('unsupported-model', 'config.json: "attention_bias": not supported for this model type');
  const networks = file.num_hidden_layers * (traits.experts?.count ?? 0);
  if (networks > MOST_EXPERTS)
    throw new ModelError(
      'malformed-config',
      `config.json: ${networks} experts in all layers; the limit is ${MOST_EXPERTS}`,
    );
  const rope = ropeOf(file);
  const rotaryDim = Math.floor(headDim * (file.partial_rotary_factor ?? rope.values.partial_rotary_factor ?? 1));
  if (rotaryDim % 2 !== 0 || rotaryDim === 0)
    throw new ModelError('malformed-config', `config.json: "partial_rotary_factor": ${rotaryDim} values are not pairs`);
  const contextLength = contextLengthOf(file, traits);
  return {
    ...traits,
    family: type,
    hiddenSize: file.hidden_size,
    intermediateSize: file.intermediate_size,
    layers: file.num_hidden_layers,
    heads,
    kvHeads,
    headDim,
    vocabularySize: file.vocab_size,
    contextLength,
    rotaryDim,
    ropeTheta: file.rope_theta ?? rope.values.rope_theta ?? 10_000,
    ropeScaling: ropeScalingOf(rope, file, rotaryDim, contextLength),
    rmsNormEpsilon: file.rms_norm_eps,
    tiedEmbeddings: file.tie_word_embeddings ?? false,
    bosTokenId: tokensOf(file, file.bos_token_id)[0] ?? null,
    eosTokenIds: endTokens(file, generation),
  };
}

/** The text model's configuration inside that of a model of text and images; undefined for other files. */
function nestedText(json: unknown): object | undefined {
  const parsed = z.looseObject({ model_type: z.string(), text_config: z.looseObject({}) }).safeParse(json);
  if (!parsed.success) return undefined;
  const { model_type, text_config } = parsed.data;
  if (!Object.hasOwn(NESTED, model_type)) return undefined;
  return { model_type: NESTED[model_type], ...text_config };
}

/** The fields of a file that have values: a family's defaults stand for the others, but not for those that are null. */
function present(file: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(file).filter(([, value]) => value !== undefined));
}

/** The `config.json` that {@link parseConfig} reads back as `config`, of a plain decoder of Llama's, Mistral's or Qwen's family. */
export function configToJson(config: ModelConfig): Record<string, unknown> {
  const architecture = { llama: 'Llama', mistral: 'Mistral', qwen2: 'Qwen2', qwen3: 'Qwen3' }[config.family] ?? 'Llama';
  const scaling = config.ropeScaling;
  return {
    architectures: [`${architecture}ForCausalLM`],
    model_type: config.family,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.kvHeads,
    head_dim: config.headDim,
    vocab_size: config.vocabularySize,
    max_position_embeddings: config.contextLength,
    rope_theta: config.ropeTheta,
    sliding_window: null,
    rope_scaling: scaling && ropeScalingToJson(scaling),
    rms_norm_eps: config.rmsNormEpsilon,
    tie_word_embeddings: config.tiedEmbeddings,
    hidden_act: 'silu',
    bos_token_id: config.bosTokenId,
    eos_token_id: config.eosTokenIds.length === 1 ? config.eosTokenIds[0] : config.eosTokenIds,
  };
}

function ropeScalingToJson(scaling: RopeScaling): Record<string, unknown> {
  switch (scaling.type) {
    case 'linear':
      return { rope_type: 'linear', factor: scaling.factor };
    case 'llama3':
      return {
        rope_type: 'llama3',
        factor: scaling.factor,
        low_freq_factor: scaling.lowFrequencyFactor,
        high_freq_factor: scaling.highFrequencyFactor,
        original_max_position_embeddings: scaling.originalContextLength,
      };
    default:
      throw new Error(`no plain decoder has the scaling "${scaling.type}"`);
  }
}

function familyOf(json: unknown): Family {
  const type = z.looseObject({ model_type: z.string() }).safeParse(json);
  if (!type.success) throw malformed('config.json', type.error);
  const name = type.data.model_type;
  const family = familyOfType(name);
  if (family === undefined) {
    throw new ModelError('unsupported-model', `config.json: "model_type": models of type "${name}" are not supported`, {
      hint: `supported model types: ${MODEL_TYPES.join(', ')}, and ${LLAVA} over one of them`,
    });
  }
  return family;
}

function refuseUnsupported(file: ConfigFile): void {
  const { architectures, quantization_config: quantization, hidden_act: activation } = file;
  const refuse = (field: string, what: string, hint?: string) => {
    throw new ModelError('unsupported-model', `config.json: "${field}": ${what}`, hint === undefined ? {} : { hint });
  };
  if (quantization !== undefined && quantization !== null) {
    refuse(
      'quantization_config',
      'the weights are quantised',
      'a pull converts a quantised checkpoint (`pie models pull`); a model with a vision tower needs bf16, fp16 or fp32 weights',
    );
  }
  const other = architectures?.find((name) => /For(?!CausalLM|ConditionalGeneration)/.test(name));
  if (other !== undefined) refuse('architectures', `${other} does not generate text`);
  if (file.mlp_bias) refuse('mlp_bias', 'not supported');
  if (file.rope_interleaved) refuse('rope_interleaved', 'not supported');
  if (activation && activation !== 'silu' && activation !== 'swish')
    refuse('hidden_act', `the activation "${activation}" is not supported`);
  const kind = file.layer_types?.find((type) => type !== 'full_attention' && type !== 'sliding_attention');
  if (kind !== undefined) refuse('layer_types', `layers of type "${kind}" are not supported`);
}

/** Full attention gives the same results inside a window that all layers have, so that window bounds the context instead of changing the mask. */
function contextLengthOf(file: ConfigFile, { windows }: Traits): number {
  const { max_position_embeddings: maxPositions, num_hidden_layers: layers, max_window_layers, layer_types } = file;
  // Gemma and gpt-oss have windows by layer.
  if (windows.length > 0) return maxPositions;
  // All layers of Mistral and Phi have the window. Qwen's layers after the first `max_window_layers` have it, if `use_sliding_window` is set.
  const someLayerSlides = layer_types?.includes('sliding_attention') ?? layers > (max_window_layers ?? 0);
  const hasSlidingWindow =
    file.model_type === 'mistral' || file.model_type === 'phi3'
      ? file.use_sliding_window !== false
      : someLayerSlides && file.use_sliding_window;
  return hasSlidingWindow ? Math.min(file.sliding_window ?? maxPositions, maxPositions) : maxPositions;
}

/** The rotation's parameters, and the field that has them. */
interface Rope {
  readonly field: 'rope_parameters' | 'rope_scaling';
  readonly values: z.infer<typeof ropeSchema>;
}

function ropeOf({ rope_parameters, rope_scaling }: ConfigFile): Rope {
  return rope_parameters
    ? { field: 'rope_parameters', values: rope_parameters.full_attention ?? rope_parameters }
    : { field: 'rope_scaling', values: rope_scaling ?? {} };
}

/** Turns within the original context between which YaRN blends, by default. */
const YARN = { betaFast: 32, betaSlow: 1 } as const;

function ropeScalingOf(
  { field, values }: Rope,
  file: ConfigFile,
  rotaryDim: number,
  contextLength: number,
): RopeScaling | null {
  const refuse = (code: ModelErrorCode, what: string, hint?: string): never => {
    throw new ModelError(code, `config.json: "${field}": ${what}`, hint === undefined ? {} : { hint });
  };
  const { low_freq_factor, high_freq_factor, original_max_position_embeddings } = values;
  const type = values.rope_type ?? values.type ?? 'default';
  switch (type) {
    // `dynamic` changes the rotation only of contexts longer than `max_position_embeddings`, which Pie does not serve.
    case 'default':
    case 'dynamic':
      return null;
    case 'linear':
      return values.factor ? { type, factor: values.factor } : refuse('malformed-config', '"linear" lacks its factor');
    case 'llama3':
      if (!values.factor || !low_freq_factor || !high_freq_factor || !original_max_position_embeddings)
        return refuse('malformed-config', '"llama3" lacks one of its four parameters');
      return {
        type,
        factor: values.factor,
        lowFrequencyFactor: low_freq_factor,
        highFrequencyFactor: high_freq_factor,
        originalContextLength: original_max_position_embeddings,
      };
    case 'yarn': {
      const original = original_max_position_embeddings ?? file.max_position_embeddings;
      const scale = values.factor ?? file.max_position_embeddings / original;
      if (values.mscale && values.mscale_all_dim) return refuse('unsupported-model', '"mscale" is not supported');
      return {
        type,
        factor: scale,
        betaFast: values.beta_fast ?? YARN.betaFast,
        betaSlow: values.beta_slow ?? YARN.betaSlow,
        originalContextLength: original,
        truncates: values.truncate ?? true,
        attentionFactor: values.attention_factor ?? (scale <= 1 ? 1 : 0.1 * Math.log(scale) + 1),
      };
    }
    // An earlier name of `longrope`.
    case 'su':
    case 'longrope': {
      const original = file.original_max_position_embeddings ?? original_max_position_embeddings;
      const { short_factor: short, long_factor: long } = values;
      if (!original || short?.length !== rotaryDim / 2 || long?.length !== rotaryDim / 2)
        return refuse(
          'malformed-config',
          `"longrope" needs two lists of ${rotaryDim / 2} factors and the original context`,
        );
      const scale = file.max_position_embeddings / original;
      const ofContext = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(original));
      return {
        type: 'longrope',
        // Keys are rotated once and kept, so the lists cannot alternate with the length of a context, as they do in transformers.
        divisors: contextLength > original ? long : short,
        attentionFactor: values.attention_factor ?? ofContext,
      };
    }
    default:
      return refuse(
        'unsupported-model',
        `rope scaling "${type}" is not supported`,
        'supported: none, linear, dynamic, llama3, yarn and longrope',
      );
  }
}

function endTokens(file: ConfigFile, generation: unknown): number[] {
  const extra = z.looseObject({ eos_token_id: configSchema.shape.eos_token_id }).safeParse(generation);
  const generationIds = extra.success ? extra.data.eos_token_id : null;
  return [...new Set([...tokensOf(file, file.eos_token_id), ...tokensOf(file, generationIds)])];
}

/** The ids that the vocabulary has. Some repositories name tokens that their model has no row for. */
function tokensOf({ vocab_size }: ConfigFile, ids: number | readonly number[] | null | undefined): number[] {
  return [ids ?? []].flat().filter((id) => id < vocab_size);
}

function malformed(what: string, error: z.ZodError): ModelError {
  return new ModelError('malformed-config', `${what}: ${issueText(error)}`);
}
