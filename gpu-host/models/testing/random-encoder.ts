import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EncoderKind, parseEncoderConfig } from '../encoder/config.ts';
import { type ENCODER_PREFIXES, expectedEncoderTensors, type LoadedEncoder, loadEncoder } from '../encoder/load.ts';
import { writeSafetensors } from '../safetensors.ts';
import { gaussian, randomTensor } from './random-model.ts';

/** Options of {@link randomEncoder}. */
export interface RandomEncoderOptions {
  readonly kind: EncoderKind;
  /** Fields of `config.json`; by default a BERT of two layers whose states have 32 values. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Pooling of sentence-transformers; without it the directory has none of that library's files. */
  readonly pooling?: {
    readonly mode: 'cls_token' | 'mean_tokens';
    readonly normalizes: boolean;
    readonly maxTokens?: number;
  };
  /** Prefix of the names of the written weights. */
  readonly prefix?: (typeof ENCODER_PREFIXES)[number];
  /** True to write a norm's parameters under TensorFlow's names. */
  readonly oldNorms?: boolean;
}

const TINY = {
  model_type: 'bert',
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 64,
  type_vocab_size: 2,
  pad_token_id: 0,
  hidden_act: 'gelu',
  layer_norm_eps: 1e-12,
};

/**
 * Writes and loads a tiny random encoder in Hugging Face layout, with a tokenizer of its family, for tests that need no real weights. The same
 * options and seed give the same bytes.
 */
export async function randomEncoder(
  directory: string,
  options: RandomEncoderOptions,
  seed: number,
): Promise<LoadedEncoder> {
  const { kind, pooling, prefix = '', oldNorms = false } = options;
  const architecture = architectureOf(options.config?.model_type ?? 'bert');
  const tokenizer = architecture === 'XLMRoberta' ? unigrams() : wordPieces();
  const json = {
    architectures: [`${architecture}${kind === 'reranker' ? 'ForSequenceClassification' : 'Model'}`],
    ...TINY,
    vocab_size: tokenizer.size,
    ...(kind === 'reranker' && { id2label: { 0: 'LABEL_0' }, label2id: { LABEL_0: 0 } }),
    ...options.config,
  };
  const random = gaussian(seed);
  const writtenName = (name: string): string => {
    const plain = oldNorms
      ? name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')
      : name;
    return (/^(classifier|head)\./.test(name) ? '' : prefix) + plain;
  };
  const tensors = expectedEncoderTensors(parseEncoderConfig(json, kind)).map(([name, shape]) => ({
    name: writtenName(name),
    shape,
    // `randomTensor` recognises norms and embeddings by their lower-case names.
    data: () => randomTensor(name.toLowerCase(), shape, random),
  }));
  const write = (file: string, value: unknown) => writeFile(join(directory, file), JSON.stringify(value, null, 2));
  await mkdir(join(directory, '1_Pooling'), { recursive: true });
  await write('config.json', json);
  await write('tokenizer.json', tokenizer.json);
  await write('tokenizer_config.json', tokenizer.config);
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
  if (pooling) {
    await write('1_Pooling/config.json', { word_embedding_dimension: 32, [`pooling_mode_${pooling.mode}`]: true });
    const steps = ['Transformer', 'Pooling', ...(pooling.normalizes ? ['Normalize'] : [])];
    await write(
      'modules.json',
      steps.map((step, idx) => ({ idx, name: String(idx), type: `sentence_transformers.models.${step}` })),
    );
    await write('config_sentence_transformers.json', { prompts: { query: 'query: ' }, default_prompt_name: null });
    if (pooling.maxTokens !== undefined) {
      await write('sentence_bert_config.json', { max_seq_length: pooling.maxTokens });
    }
  }
  return loadEncoder(directory, kind);
}

function architectureOf(modelType: unknown): 'Bert' | 'ModernBert' | 'XLMRoberta' {
  if (modelType === 'bert') return 'Bert';
  return modelType === 'modernbert' ? 'ModernBert' : 'XLMRoberta';
}

const LETTERS = [...'abcdefghijklmnopqrstuvwxyz'];
const WORDS = ['the', 'king', 'queen', 'of', 'france', 'paris', 'un', '##s', '##ing', '##ed'];
const SIGNS = [...'.,?!-[]<>/'];

interface WrittenTokenizer {
  readonly size: number;
  readonly json: object;
  readonly config: object;
}

const special = (content: string, id: number) => ({
  id,
  content,
  special: true,
  normalized: false,
  single_word: false,
  lstrip: false,
  rstrip: false,
});

function wordPieces(): WrittenTokenizer {
  const specials = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
  const vocabulary = [...specials, ...SIGNS, ...LETTERS, ...LETTERS.map((letter) => `##${letter}`), ...WORDS];
  const [cls, sep] = ['[CLS]', '[SEP]'].map((id) => (type_id: number) => ({ SpecialToken: { id, type_id } }));
  const text = (id: 'A' | 'B', type_id: number) => ({ Sequence: { id, type_id } });
  const named = (id: string) => [id, { id, ids: [specials.indexOf(id)], tokens: [id] }];
  return {
    size: vocabulary.length,
    json: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: specials.map(special),
      normalizer: {
        type: 'BertNormalizer',
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: true,
      },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      post_processor: {
        type: 'TemplateProcessing',
        single: [cls?.(0), text('A', 0), sep?.(0)],
        pair: [cls?.(0), text('A', 0), sep?.(0), text('B', 1), sep?.(1)],
        special_tokens: Object.fromEntries(['[CLS]', '[SEP]'].map(named)),
      },
      decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      },
    },
    config: {
      tokenizer_class: 'BertTokenizer',
      cls_token: '[CLS]',
      sep_token: '[SEP]',
      pad_token: '[PAD]',
      unk_token: '[UNK]',
    },
  };
}

function unigrams(): WrittenTokenizer {
  const specials = ['<s>', '<pad>', '</s>', '<unk>'];
  const words = WORDS.map((word) => (word.startsWith('##') ? word.slice(2) : `▁${word}`));
  const pieces = [...new Set(['▁', ...words, ...LETTERS, ...SIGNS])];
  // A word is likelier than its letters one by one, so the tokenizer prefers it.
  const score = (piece: string) => (piece.length > 1 ? -2 - piece.length / 10 : -8);
  const [cls, sep] = [0, 2].map((id) => [specials[id], id]);
  return {
    size: specials.length + pieces.length,
    json: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: specials.map(special),
      normalizer: { type: 'NFKC' },
      pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
      post_processor: { type: 'RobertaProcessing', cls, sep, trim_offsets: true, add_prefix_space: true },
      decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
      model: {
        type: 'Unigram',
        unk_id: 3,
        byte_fallback: false,
        vocab: [...specials.map((token) => [token, 0]), ...pieces.map((piece) => [piece, score(piece)])],
      },
    },
    config: {
      tokenizer_class: 'XLMRobertaTokenizer',
      bos_token: '<s>',
      eos_token: '</s>',
      cls_token: '<s>',
      sep_token: '</s>',
      pad_token: '<pad>',
      unk_token: '<unk>',
    },
  };
}
