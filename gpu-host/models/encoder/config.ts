import { z } from 'zod';
import { ModelError } from '../errors.ts';

/**
 * Parameters of an encoder of the BERT family (Devlin et al., 2019), read from a Hugging Face `config.json`: BERT, MiniLM, BGE and E5
 * (`bert`), RoBERTa and the multilingual models on XLM-RoBERTa (`roberta`).
 */
export interface EncoderConfig {
  /** The families differ in the first position and in the head of a reranker. */
  readonly family: 'bert' | 'roberta';
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly vocabularySize: number;
  /** Rows of the table of position embeddings, and the row of a text's first token. */
  readonly positions: number;
  readonly firstPosition: number;
  /** Rows of the table of segment embeddings: 2 for models that tell the texts of a pair apart. */
  readonly tokenTypes: number;
  /** Most tokens of one input, special tokens included. */
  readonly contextLength: number;
  readonly activation: EncoderActivation;
  readonly layerNormEpsilon: number;
  /** Computes the results from the last states. */
  readonly head: EncoderHead;
}

/** The exact GELU, its approximation by a tanh (Hendrycks and Gimpel, 2016), or the ReLU. */
export type EncoderActivation = 'gelu' | 'gelu-tanh' | 'relu';

export type EncoderHead =
  /** One vector per text: the first token's state, or the mean of all; of length 1 when `normalizes`. */
  | { readonly kind: 'embedding'; readonly pooling: 'first' | 'mean'; readonly normalizes: boolean }
  /** One score per pair of texts: the logit of a classifier with one label on the first token's state. */
  | { readonly kind: 'reranker' };

/** Use of an encoder, which its operator chooses. */
export type EncoderKind = EncoderHead['kind'];

/** The `model_type`s that are computed here. */
export const ENCODER_TYPES = ['bert', 'roberta', 'xlm-roberta'] as const;

const ACTIVATIONS: Readonly<Record<string, EncoderActivation>> = {
  gelu: 'gelu',
  gelu_new: 'gelu-tanh',
  gelu_pytorch_tanh: 'gelu-tanh',
  relu: 'relu',
};

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
  hidden_act: z.string().default('gelu'),
  layer_norm_eps: z.number().positive().max(1).default(1e-12),
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
}

/** The files beside `config.json` that sentence-transformers writes. */
export const SENTENCE_FILES = ['modules.json', '1_Pooling/config.json', 'sentence_bert_config.json'] as const;

const modulesSchema = z.array(z.looseObject({ type: z.string() })).max(16);
const poolingSchema = z.record(z.string(), z.unknown());
const sentenceSchema = z.looseObject({ max_seq_length: size.nullish() });

/**
 * Reads the parsed JSON of an encoder's files.
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-model` with the feature that is not computed here
 */
export function parseEncoderConfig(json: unknown, kind: EncoderKind, files: SentenceFiles = {}): EncoderConfig {
  const type = z.looseObject({ model_type: z.string() }).safeParse(json);
  if (!type.success) throw malformed('config.json', type.error);
  if (!(ENCODER_TYPES as readonly string[]).includes(type.data.model_type)) {
    throw refused(`encoders of type "${type.data.model_type}"`);
  }
  const parsed = configSchema.safeParse(json);
  if (!parsed.success) throw malformed('config.json', parsed.error);
  const file = parsed.data;
  if (file.is_decoder) throw refused('a decoder of the BERT family');
  if (file.quantization_config !== undefined) throw refused('quantised weights');
  if ((file.position_embedding_type ?? 'absolute') !== 'absolute')
    throw refused(`"position_embedding_type": "${file.position_embedding_type}"`);
  if (file.hidden_size % file.num_attention_heads !== 0) {
    throw new ModelError(
      'malformed-config',
      `config.json: ${file.num_attention_heads} heads cannot share ${file.hidden_size} values`,
    );
  }
  const activation = ACTIVATIONS[file.hidden_act];
  if (activation === undefined) throw refused(`"hidden_act": "${file.hidden_act}"`);
  const family = file.model_type === 'bert' ? 'bert' : 'roberta';
  // RoBERTa counts positions from the row after that of padding.
  const firstPosition = family === 'bert' ? 0 : (file.pad_token_id ?? 1) + 1;
  const usable = file.max_position_embeddings - firstPosition;
  if (usable < MIN_CONTEXT) throw new ModelError('malformed-config', `config.json: room for ${usable} tokens`);
  const sentence = sentenceSchema.safeParse(files.sentence ?? {});
  if (!sentence.success) throw malformed('sentence_bert_config.json', sentence.error);
  return {
    family,
    hiddenSize: file.hidden_size,
    intermediateSize: file.intermediate_size,
    layers: file.num_hidden_layers,
    heads: file.num_attention_heads,
    vocabularySize: file.vocab_size,
    positions: file.max_position_embeddings,
    firstPosition,
    tokenTypes: file.type_vocab_size,
    contextLength: Math.min(usable, Math.max(MIN_CONTEXT, sentence.data.max_seq_length ?? usable)),
    activation,
    layerNormEpsilon: file.layer_norm_eps,
    head: kind === 'reranker' ? rerankerHead(file.id2label ?? {}) : embeddingHead(files),
  };
}

/** The special tokens of a pair, and one token of each text. */
const MIN_CONTEXT = 6;

function rerankerHead(labels: Readonly<Record<string, unknown>>): EncoderHead {
  const count = Object.keys(labels).length;
  if (count > 1) throw refused(`a classifier with ${count} labels; a reranker has one`);
  return { kind: 'reranker' };
}

function embeddingHead({ modules: modulesFile, pooling: poolingFile }: SentenceFiles): EncoderHead {
  // Without sentence-transformers' files nothing says how the states become one vector; the mean is what such models do most.
  if (modulesFile === undefined && poolingFile === undefined)
    return { kind: 'embedding', pooling: 'mean', normalizes: true };
  const modules = modulesSchema.safeParse(modulesFile ?? []);
  if (!modules.success) throw malformed('modules.json', modules.error);
  const steps = modules.data.map(({ type }) => type.slice(type.lastIndexOf('.') + 1));
  const unknown = steps.find((step) => !['Transformer', 'Pooling', 'Normalize'].includes(step));
  if (unknown !== undefined) throw refused(`the step "${unknown}" of modules.json`);
  const pooling = poolingSchema.safeParse(poolingFile ?? {});
  if (!pooling.success) throw malformed('1_Pooling/config.json', pooling.error);
  const modes = Object.entries(pooling.data)
    .filter(([name, value]) => name.startsWith('pooling_mode_') && value === true)
    .map(([name]) => name.slice('pooling_mode_'.length));
  const named = pooling.data.pooling_mode;
  const [mode = typeof named === 'string' ? named : 'mean_tokens', ...more] = modes;
  if (more.length > 0) throw refused(`several poolings at once (${modes.join(', ')})`);
  const kind = POOLINGS[mode];
  if (kind === undefined) throw refused(`the pooling "${mode}"`);
  return { kind: 'embedding', pooling: kind, normalizes: steps.includes('Normalize') };
}

const POOLINGS: Readonly<Record<string, 'first' | 'mean'>> = {
  cls_token: 'first',
  cls: 'first',
  mean_tokens: 'mean',
  mean: 'mean',
};

function refused(what: string): ModelError {
  return new ModelError('unsupported-model', `${what}: Pie does not compute this`, {
    hint: `supported encoders: ${ENCODER_TYPES.join(', ')} with absolute positions, pooled by the mean or the first token`,
  });
}

function malformed(file: string, error: z.ZodError): ModelError {
  const issue = error.issues[0];
  return new ModelError('malformed-config', `${file}: "${issue?.path.join('.')}": ${issue?.message}`);
}
