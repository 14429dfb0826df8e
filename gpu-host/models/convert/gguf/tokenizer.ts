import { z } from 'zod';
import type { ModelConfig } from '../../config.ts';
import { END_NAMES, TURN_NAMES } from '../../control-tokens.ts';
import { ModelError, type ModelErrorCode } from '../../errors.ts';
import { addedToken, type Piece, type PieceKind, sentencePieceTokenizer, vocabularyOf } from '../sentencepiece.ts';
import type { MetadataValue } from './header.ts';

type Metadata = ReadonlyMap<string, MetadataValue>;

/** Piece kinds by their number in `tokenizer.ggml.token_type`; a number without an entry counts as `normal`. */
const KINDS: readonly PieceKind[] = ['normal', 'normal', 'unknown', 'control', 'added', 'unused', 'byte'];

/** Maximum length of a piece: the time to find its merges grows with the square of its length. Real pieces have at most 64 characters. */
const MAX_PIECE_CHARACTERS = 256;

const tokenId = z.int().min(0).optional();
const keysSchema = z.object({
  model: z.enum(['llama', 'gpt2'], {
    error: ({ input }) =>
      `tokenizers of type "${String(input)}" are not supported; supported are llama (SentencePiece) and gpt2`,
  }),
  pre: z.string().optional(),
  tokens: z.array(z.string()).min(1),
  scores: z.array(z.number()).optional(),
  token_type: z.array(z.number()).optional(),
  merges: z.array(z.string()).optional(),
  bos_token_id: tokenId,
  eos_token_id: tokenId,
  eot_token_id: tokenId,
  eom_token_id: tokenId,
  unknown_token_id: tokenId,
  padding_token_id: tokenId,
  add_bos_token: z.boolean().optional(),
  add_space_prefix: z.boolean().default(true),
});
type Keys = z.infer<typeof keysSchema>;

const GPT2_WORDS = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const words = (digits: string) =>
  `${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const split = (regex: string) => ({
  type: 'Sequence',
  pretokenizers: [
    { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false },
    { ...GPT2_WORDS, use_regex: false },
  ],
});

interface WordRules {
  readonly split: object;
  readonly normalizer?: object;
  readonly ignoreMerges?: boolean;
  readonly addsBos?: boolean;
}
/** Rules by which byte-level tokenizers cut a text into words, by the name in `tokenizer.ggml.pre`; copied from these models' tokenizer.json. */
const WORDS: Readonly<Record<string, WordRules>> = {
  'gpt-2': { split: GPT2_WORDS },
  smollm: { split: { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, GPT2_WORDS] } },
  'llama-bpe': { split: split(words('\\p{N}{1,3}')), ignoreMerges: true, addsBos: true },
  qwen2: { split: split(words('\\p{N}')), normalizer: { type: 'NFC' } },
};

/**
 * A GGUF file's tokenizer as `tokenizer.json` and `tokenizer_config.json`.
 *
 * @throws ModelError `malformed-tokenizer` with the key, or `unsupported-model`
 */
export function ggufTokenizer(metadata: Metadata, config: ModelConfig): { tokenizer: object; settings: object } {
  const keys = readKeys(metadata);
  if (keys.tokens.length > config.vocabularySize) {
    throw new ModelError(
      'malformed-tokenizer',
      `the GGUF file has ${keys.tokens.length} tokens, its output has ${config.vocabularySize}`,
    );
  }
  const pieces = piecesOf(keys);
  const tokenizer =
    keys.model === 'llama'
      ? sentencePieceTokenizer(pieces, { prependsSpace: keys.add_space_prefix })
      : byteLevelTokenizer(keys, pieces);
  const template = metadata.get('tokenizer.chat_template');
  const nameOf = (id: number | undefined) => (id === undefined ? null : (keys.tokens[id] ?? null));
  const settings = {
    bos_token: addsBosToken(keys) || String(template).includes('bos_token') ? nameOf(keys.bos_token_id) : null,
    eos_token: nameOf(keys.eos_token_id),
    unk_token: nameOf(keys.unknown_token_id),
    pad_token: nameOf(keys.padding_token_id),
    add_bos_token: addsBosToken(keys),
    clean_up_tokenization_spaces: false,
    model_max_length: config.contextLength,
    ...(typeof template === 'string' && { chat_template: template }),
  };
  return { tokenizer, settings };
}

/** Special tokens for `config.json`: the token that begins a text, and the tokens that end one. */
export function specialIds(metadata: Metadata): { bos: number | null; eos: number[] } {
  const keys = readKeys(metadata);
  return { bos: addsBosToken(keys) ? (keys.bos_token_id ?? null) : null, eos: endIds(keys) };
}

function endIds({ tokens, eos_token_id, eot_token_id, eom_token_id }: Keys): number[] {
  const named = tokens.flatMap((text, id) => (END_NAMES.includes(text) ? [id] : []));
  const stated = [eos_token_id, eot_token_id, eom_token_id].filter((id) => id !== undefined);
  return [...new Set([...stated, ...named])];
}

function readKeys(metadata: Metadata): Keys {
  const parsed = keysSchema.safeParse(
    Object.fromEntries(Object.keys(keysSchema.shape).map((key) => [key, metadata.get(`tokenizer.ggml.${key}`)])),
  );
  const malformed = (key: string, what: string | undefined, code: ModelErrorCode = 'malformed-tokenizer') =>
    new ModelError(code, `the GGUF file's "tokenizer.ggml.${key}": ${what}`);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const key = issue?.path.join('.') ?? '';
    throw malformed(key, issue?.message, key === 'model' ? 'unsupported-model' : undefined);
  }
  // Only these tokens must exist. For a model without a padding token, llama.cpp writes the padding id 2³² − 1, and it ignores such ids.
  for (const key of ['bos_token_id', 'eos_token_id', 'eot_token_id', 'eom_token_id'] as const) {
    if ((parsed.data[key] ?? 0) >= parsed.data.tokens.length) throw malformed(key, 'there is no token of this id');
  }
  return parsed.data;
}

function addsBosToken(keys: Keys): boolean {
  return keys.add_bos_token ?? (keys.model === 'llama' || rulesOf(keys.pre)?.addsBos === true);
}

function rulesOf(pre = ''): WordRules | undefined {
  return Object.hasOwn(WORDS, pre) ? WORDS[pre] : undefined;
}

function piecesOf(keys: Keys): Piece[] {
  const { model, tokens, scores, token_type: types } = keys;
  // A list must have one entry for each token. Only SentencePiece, here `llama`, needs both lists.
  for (const [key, list] of Object.entries({ scores, token_type: types })) {
    if (list === undefined ? model === 'llama' : list.length !== tokens.length) {
      throw new ModelError(
        'malformed-tokenizer',
        `the GGUF file's "tokenizer.ggml.${key}" has ${list?.length ?? 0} entries for ${tokens.length} tokens`,
      );
    }
  }
  const tooLongId = model === 'llama' ? tokens.findIndex((text) => text.length > MAX_PIECE_CHARACTERS) : -1;
  if (tooLongId >= 0) {
    throw new ModelError(
      'malformed-tokenizer',
      `the GGUF file's token ${tooLongId} has ${tokens[tooLongId]?.length} characters; the limit is ${MAX_PIECE_CHARACTERS}`,
    );
  }
  // Tokens that begin or end a text or a turn must be control tokens, or else a user's text could end a turn with them. Files state other types
  // for some of these tokens, or no types.
  const control = new Set(
    endIds(keys).concat(
      keys.bos_token_id ?? [],
      TURN_NAMES.map((name) => tokens.indexOf(name)),
    ),
  );
  return tokens.map((text, id) => ({
    text,
    score: scores?.[id] ?? 0,
    kind: control.has(id) ? 'control' : (KINDS[types?.[id] ?? 1] ?? 'normal'),
  }));
}

function byteLevelTokenizer({ pre = '', merges }: Keys, pieces: readonly Piece[]): object {
  const rules = rulesOf(pre);
  if (rules === undefined) {
    const how =
      pre === '' ? 'does not say how its tokenizer cuts words' : `has a tokenizer that cuts words as "${pre}"`;
    throw new ModelError('unsupported-model', `the GGUF file ${how} ("tokenizer.ggml.pre")`, {
      hint: `known: ${Object.keys(WORDS).join(', ')}; the model in Hugging Face layout has its own rules with it`,
    });
  }
  if (merges === undefined) {
    throw new ModelError('malformed-tokenizer', 'the GGUF file lacks "tokenizer.ggml.merges"');
  }
  const ids = vocabularyOf(pieces);
  const added = pieces.flatMap(({ text, kind }, id) =>
    kind === 'control' || kind === 'added' ? [addedToken(id, text, kind === 'control')] : [],
  );
  const ordinary = [...ids].filter(([, id]) => pieces[id]?.kind === 'normal');
  return {
    version: '1.0',
    added_tokens: added,
    normalizer: rules.normalizer ?? null,
    pre_tokenizer: rules.split,
    post_processor: null,
    // Hugging Face's Rust library rejects a `ByteLevel` without these fields.
    decoder: GPT2_WORDS,
    model: {
      type: 'BPE',
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: rules.ignoreMerges ?? false,
      vocab: Object.fromEntries(ordinary),
      merges: merges.map(pairOf),
    },
  };
}

/**
 * The two tokens of a merge, which a space separates. Byte-level tokens contain no space, but old converters wrote some tokens that begin with one.
 * A space at the start therefore belongs to the first token.
 */
function pairOf(merge: string): [string, string] {
  const space = merge.indexOf(' ', 1);
  if (space < 0) throw new ModelError('malformed-tokenizer', `the GGUF file has a merge ${JSON.stringify(merge)}`);
  return [merge.slice(0, space), merge.slice(space + 1)];
}
