import { z } from 'zod';
import type { EncoderKind } from '#wit/generated/host.ts';
import { issueText, ModelError } from '../errors.ts';

/**
 * Parameters of an encoder of the BERT family (Devlin et al., 2019), read from a Hugging Face `config.json`: BERT, MiniLM, BGE and E5
 * (`bert`), RoBERTa and the multilingual models on XLM-RoBERTa (`roberta`), ModernBERT (`modernbert`).
 */
export type EncoderConfig = CommonParts & (BertParts | ModernBertParts);

/**
 * The part of a config that only BERT and RoBERTa have. They differ in the first position and in the head of a
 * reranker.
 */
interface BertParts {
  readonly family: 'bert' | 'roberta';
  /** Number of rows in the table of position embeddings. */
  readonly positions: number;
  /** Row of that table for a text's first token. */
  readonly firstPosition: number;
}

interface CommonParts {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly vocabularySize: number;
  /** Number of rows in the table of segment embeddings: 2 for models that tell the texts of a pair apart. */
  readonly tokenTypes: number;
  /** Maximum tokens of one input, special tokens included. */
  readonly contextLength: number;
  readonly activation: EncoderActivation;
  readonly layerNormEpsilon: number;
  /** The part of the model that computes the results from the states of the last layer. */
  readonly head: EncoderHead;
}

/** The exact GELU, its approximation by a tanh (Hendrycks and Gimpel, 2016), or the ReLU. */
export type EncoderActivation = 'gelu' | 'gelu-tanh' | 'relu';

export type EncoderHead =
  /** One vector per text: the state of the first token, or the mean of all states. `normalizes` scales the vector to length 1. */
  | { readonly kind: 'embedding'; readonly pooling: 'first' | 'mean'; readonly normalizes: boolean }
  /** One score per pair of texts: the logit of a classifier with one label. */
  | { readonly kind: 'reranker' };

/** `embedding` or `reranker`: the use of an encoder, which the operator chooses. */
export type { EncoderKind };

/** Supported `model_type`s. */
export const ENCODER_TYPES = ['bert', 'roberta', 'xlm-roberta', 'modernbert'] as const;

const ACTIVATIONS: ReadonlyMap<string, EncoderActivation> = new Map([
  ['gelu', 'gelu'],
  ['gelu_new', 'gelu-tanh'],
  ['gelu_pytorch_tanh', 'gelu-tanh'],
  ['relu', 'relu'],
]);

// Far above any real model, as in `../config.ts`.
const size = z
  .int()
  .min(1)
  .max(1 << 24);

const configSchema = z.looseObject({
  model_type: z.enum(ENCODER_TYPES),
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size.max(1024),
  num_attention_heads: size.max(4096),
  vocab_size: size,
  max_position_embeddings: size,
  type_vocab_size: size.max(16).default(2),
  pad_token_id: z.int().min(0).nullish(),
  /** ModernBERT has `hidden_activation` instead, and `norm_eps` instead of `layer_norm_eps`. */
  hidden_act: z.string().optional(),
  hidden_activation: z.string().optional(),
  layer_norm_eps: z.number().positive().max(1).default(1e-12),
  norm_eps: z.number().positive().max(1).default(1e-5),
  position_embedding_type: z.string().nullish(),
  is_decoder: z.boolean().nullish(),
  quantization_config: z.unknown().optional(),
  id2label: z.record(z.string(), z.unknown()).nullish(),
});

/** The files of {@link SENTENCE_FILES}, parsed; undefined where a file is missing. */
export interface SentenceFiles {
  /** `modules.json`: the steps of the model, in order. */
  readonly modules?: unknown;
  /** `1_Pooling/config.json`. */
  readonly pooling?: unknown;
  /** `sentence_bert_config.json`. */
  readonly sentence?: unknown;
  /** `config_sentence_transformers.json`. */
  readonly library?: unknown;
}

/** The files beside `config.json` that sentence-transformers writes. */
export const SENTENCE_FILES = [
  'modules.json',
  '1_Pooling/config.json',
  'sentence_bert_config.json',
  'config_sentence_transformers.json',
] as const;

const modulesSchema = z.array(z.looseObject({ type: z.string(), path: z.string().nullish() })).max(16);
const poolingSchema = z.looseObject({ pooling_mode: z.string().nullish() });
const sentenceSchema = z.looseObject({ max_seq_length: size.nullish(), do_lower_case: z.boolean().nullish() });
const librarySchema = z.looseObject({ default_prompt_name: z.string().nullish() });

/**
 * Reads the parsed JSON of an encoder's files.
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-model` with the unsupported feature
 */
export function parseEncoderConfig(json: unknown, kind: EncoderKind, files: SentenceFiles = {}): EncoderConfig {
  const type = z.looseObject({ model_type: z.string() }).safeParse(json);
  if (!type.success) throw malformed('config.json', type.error);
  if (!(ENCODER_TYPES as readonly string[]).includes(type.data.model_type)) {
    throw refused(`encoders with "model_type": "${type.data.model_type}"`);
  }
  const parsed = configSchema.safeParse(json);
  if (!parsed.success) throw malformed('config.json', parsed.error);
  const file = parsed.data;
  if (file.is_decoder) throw refused('"is_decoder": true');
  if ((file.quantization_config ?? null) !== null) throw refused('weights with a "quantization_config"');
  if ((file.position_embedding_type ?? 'absolute') !== 'absolute')
    throw refused(`"position_embedding_type": "${file.position_embedding_type}"`);
  if (file.hidden_size % file.num_attention_heads !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: "num_attention_heads": ${file.num_attention_heads} heads cannot share the ${file.hidden_size} values of "hidden_size"`,
    );
  }
  if (file.model_type === 'modernbert' && (file.hidden_size / file.num_attention_heads) % 2 !== 0)
    throw new ModelError('malformed-config', 'config.json: "hidden_size" per head is odd: values turn in pairs');
  const isModern = file.model_type === 'modernbert';
  const activationName = isModern ? 'hidden_activation' : 'hidden_act';
  const activation = ACTIVATIONS.get(file[activationName] ?? 'gelu');
  if (activation === undefined) throw refused(`"${activationName}": "${file[activationName]}"`);
  const family = isModern ? parseModernBert(json) : bertParts(file);
  const usablePositions = file.max_position_embeddings - ('positions' in family ? family.firstPosition : 0);
  if (usablePositions < MIN_CONTEXT) {
    const names = `"max_position_embeddings"${file.model_type.endsWith('roberta') ? ' less "pad_token_id"' : ''}`;
    throw new ModelError('malformed-config', `config.json: ${names}: room for ${usablePositions} tokens`);
  }
  const sentence = sentenceSchema.safeParse(files.sentence ?? {});
  if (!sentence.success) throw malformed('sentence_bert_config.json', sentence.error);
  if (sentence.data.do_lower_case) throw refused('"do_lower_case" of sentence_bert_config.json');
  return {
    ...family,
    hiddenSize: file.hidden_size,
    intermediateSize: file.intermediate_size,
    layers: file.num_hidden_layers,
    heads: file.num_attention_heads,
    vocabularySize: file.vocab_size,
    tokenTypes: isModern ? 1 : file.type_vocab_size,
    contextLength: Math.min(
      usablePositions,
      // With a smaller length, a pair might have no room for a token of each text.
      Math.max(MIN_CONTEXT, sentence.data.max_seq_length ?? usablePositions),
      Math.max(MIN_CONTEXT, Math.floor(Math.sqrt(MAX_SCORES / file.num_attention_heads))),
    ),
    activation,
    layerNormEpsilon: isModern ? file.norm_eps : file.layer_norm_eps,
    head: kind === 'reranker' ? rerankerHead(file.id2label ?? {}) : embeddingHead(files),
  };
}

function bertParts(file: z.output<typeof configSchema>): BertParts {
  const positions = file.max_position_embeddings;
  // RoBERTa's first position is the row after the padding's row.
  return file.model_type === 'bert'
    ? { family: 'bert', positions, firstPosition: 0 }
    : { family: 'roberta', positions, firstPosition: (file.pad_token_id ?? 1) + 1 };
}

/**
 * Maximum number of attention scores of a text in one layer, over all heads; as 32-bit floats, these take 1 GiB. A backend may hold the scores of a
 * whole layer, and any client may send a long text.
 */
const MAX_SCORES = 2 ** 28;

/** Minimum length of a context: four special tokens, which RoBERTa needs for a pair, and one token of each text. */
const MIN_CONTEXT = 6;

function rerankerHead(labels: Readonly<Record<string, unknown>>): EncoderHead {
  const count = Object.keys(labels).length;
  if (count > 1) throw refused(`"id2label": a classifier with ${count} labels; a reranker has one`);
  return { kind: 'reranker' };
}

function embeddingHead(files: SentenceFiles): EncoderHead {
  const library = librarySchema.safeParse(files.library ?? {});
  if (!library.success) throw malformed('config_sentence_transformers.json', library.error);
  const { default_prompt_name: prompt } = library.data;
  if (prompt)
    throw refused(
      `the prompt "${prompt}" before each text, "default_prompt_name" of config_sentence_transformers.json`,
    );
  // Without sentence-transformers' files the pooling is unknown; most such models use the mean.
  if (files.modules === undefined && files.pooling === undefined)
    return { kind: 'embedding', pooling: 'mean', normalizes: true };
  const modules = modulesSchema.safeParse(files.modules ?? []);
  if (!modules.success) throw malformed('modules.json', modules.error);
  const steps = modules.data.map(({ type }) => type.slice(type.lastIndexOf('.') + 1));
  const unknown = steps.find((step) => !['Transformer', 'Pooling', 'Normalize'].includes(step));
  if (unknown !== undefined) throw refused(`the step "${unknown}" of modules.json`);
  const step = modules.data[steps.indexOf('Pooling')];
  if (files.modules !== undefined && !step) throw refused('modules.json without the step Pooling');
  const path = step?.path ?? '';
  if (path !== '' && path !== '1_Pooling') throw refused(`the folder "${path}" of the step Pooling in modules.json`);
  return { kind: 'embedding', pooling: poolingOf(files.pooling), normalizes: steps.includes('Normalize') };
}

function poolingOf(json: unknown): 'first' | 'mean' {
  if (json === undefined) {
    const hint = 'copy the model with its folders';
    throw new ModelError('missing-file', '1_Pooling/config.json, which modules.json needs, is missing', { hint });
  }
  const file = poolingSchema.safeParse(json);
  if (!file.success) throw malformed('1_Pooling/config.json', file.error);
  const modes = Object.entries(file.data)
    .filter(([name, value]) => name.startsWith('pooling_mode_') && value === true)
    .map(([name]) => name.slice('pooling_mode_'.length));
  const [mode = file.data.pooling_mode ?? 'mean_tokens', ...more] = modes;
  if (more.length > 0) throw refused(`several poolings at once (${modes.join(', ')})`);
  const pooling = POOLINGS.get(mode);
  if (pooling === undefined) throw refused(`the pooling "${mode}"`);
  return pooling;
}

const POOLINGS: ReadonlyMap<string, 'first' | 'mean'> = new Map([
  ['cls_token', 'first'],
  ['cls', 'first'],
  ['mean_tokens', 'mean'],
  ['mean', 'mean'],
]);

function refused(what: string): ModelError {
  return new ModelError('unsupported-model', `${what}: Pie does not compute this`, {
    hint: `supported encoders: ${ENCODER_TYPES.join(', ')} with absolute or ModernBERT's positions, pooled by the mean or the first token`,
  });
}

function malformed(file: string, error: z.ZodError): ModelError {
  return new ModelError('malformed-config', `${file}: ${issueText(error)}`);
}

/**
 * The part of an encoder's config that only ModernBERT has (Warner et al., 2024): it normalises before each sublayer, rotates queries and
 * keys by their positions (RoPE), has a gated MLP, and in most layers lets a token attend only to near tokens.
 */
export interface ModernBertParts {
  readonly family: 'modernbert';
  /** For each layer: true when a token attends to all tokens, false when it attends only to tokens at most `window` positions away. */
  readonly seesAll: readonly boolean[];
  readonly window: number;
  /** Bases of the rotation: `all` for layers in which a token attends to all tokens, `near` for the other layers. */
  readonly thetas: { readonly all: number; readonly near: number };
  /** The vector that a reranker scores: the first token's state, or the mean of all states. */
  readonly scorePooling: 'first' | 'mean';
}

const mustBeFalse = z.literal(false).default(false);
const theta = z.number().positive().max(1e12);
const rotation = z.looseObject({ rope_type: z.literal('default').default('default'), rope_theta: theta.optional() });

const schema = z.looseObject({
  num_hidden_layers: z.int().min(1).max(1024),
  global_attn_every_n_layers: z.int().min(1).max(1024).default(3),
  layer_types: z.array(z.enum(['full_attention', 'sliding_attention'])).nullish(),
  local_attention: z
    .int()
    .min(1)
    .max(1 << 24)
    .default(128),
  global_rope_theta: theta.default(160_000),
  local_rope_theta: theta.nullable().default(10_000),
  rope_scaling: z.null().optional(),
  rope_parameters: z
    .looseObject({ full_attention: rotation.nullish(), sliding_attention: rotation.nullish() })
    .nullish(),
  classifier_pooling: z.enum(['cls', 'mean']).default('cls'),
  // No published model changes these fields, so other values are refused.
  norm_bias: mustBeFalse,
  attention_bias: mustBeFalse,
  mlp_bias: mustBeFalse,
  classifier_bias: mustBeFalse,
  classifier_activation: z.literal('gelu').default('gelu'),
});

/** Reads ModernBERT's own fields of a `config.json`. @throws ModelError `malformed-config` with the field */
export function parseModernBert(json: unknown): ModernBertParts {
  const parsed = schema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `config.json: ${issueText(parsed.error)}`);
  const file = parsed.data;
  const { num_hidden_layers: layers, layer_types: types, rope_parameters: rotations } = file;
  if (types && types.length !== layers) {
    throw new ModelError('malformed-config', `config.json: "layer_types" has ${types.length} of ${layers} layers`);
  }
  const globalInterval = file.global_attn_every_n_layers;
  const globalTheta = rotations?.full_attention?.rope_theta ?? file.global_rope_theta;
  return {
    family: 'modernbert',
    seesAll: Array.from({ length: layers }, (_, i) =>
      types ? types[i] === 'full_attention' : i % globalInterval === 0,
    ),
    window: Math.floor(file.local_attention / 2),
    thetas: {
      all: globalTheta,
      // As in transformers 4, `"local_rope_theta": null` means `global_rope_theta`.
      near: rotations?.sliding_attention?.rope_theta ?? file.local_rope_theta ?? globalTheta,
    },
    scorePooling: file.classifier_pooling === 'cls' ? 'first' : 'mean',
  };
}
