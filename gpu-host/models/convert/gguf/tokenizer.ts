import { z } from 'zod';
import type { ModelConfig } from '../../config.ts';
import { END_NAMES, TURN_NAMES } from '../../control-tokens.ts';
import { ModelError, type ModelErrorCode } from '../../errors.ts';
import { addedToken, type Piece, type PieceKind, sentencePieceTokenizer, vocabularyOf } from '../sentencepiece.ts';
import type { MetadataValue } from './header.ts';

type Metadata = ReadonlyMap<string, MetadataValue>;

/** Piece kinds by their number in `tokenizer.ggml.token_type`; a number without an entry counts as `normal`. */
const KINDS: readonly PieceKind[] = ['normal', 'normal', 'unknown', 'control', 'added', 'unused', 'byte'];

const CONTROL = KINDS.indexOf('control');

/** Maximum length of a piece: the time to find its merges grows with the square of its length. Real pieces have at most 64 characters. */
const MAX_PIECE_CHARACTERS = 256;

/** Hugging Face's Rust library rejects a `ByteLevel` without these fields. */
const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };

const tokenId = z.int().min(0).optional();
const keysSchema = z.object({
  model: z.enum(['llama', 'gpt2'], {
    error: ({ input }) =>
      `tokenizers of type "${String(input)}" are not supported; supported are llama (SentencePiece) and gpt2`,
  }),
  pre: z
    .string()
    .optional()
    .transform((name) => name || 'default'),
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
  fim_pad_token_id: tokenId,
  fim_rep_token_id: tokenId,
  fim_sep_token_id: tokenId,
  add_bos_token: z.boolean().optional(),
  add_eos_token: z.boolean().default(false),
  add_space_prefix: z.boolean().default(true),
});
type Keys = z.infer<typeof keysSchema>;

// Parts of the regexes by which byte-level tokenizers cut a text into words.
const CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
const BEFORE_WORD = '[^\\r\\n\\p{L}\\p{N}]?';
const LETTERS = `${BEFORE_WORD}\\p{L}+`;
const SYMBOLS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*';
const LINES = '\\s*[\\r\\n]+';
const SPACES = '\\s+(?!\\S)|\\s+';
const DIGIT = '\\p{N}';
const UP_TO_THREE_DIGITS = '\\p{N}{1,3}';
const KANJI_AND_KANA = '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+';
const NOT_PUNCTUATION = ' ?[^(\\s|.,!?…。，、।۔،)]+';
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const gpt4 = (digits: string) => [CONTRACTION, LETTERS, digits, SYMBOLS, LINES, SPACES].join('|');
/** Cuts before an upper-case letter that follows a lower-case one. */
const cased = (contraction: string, digits: string) =>
  [
    `${BEFORE_WORD}${UPPER}*${LOWER}+${contraction}`,
    `${BEFORE_WORD}${UPPER}+${LOWER}*${contraction}`,
    digits,
    ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*',
    LINES,
    SPACES,
  ].join('|');
const ASCII_SYMBOL_AND_WORD = '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+';
const MARKED_LETTERS = '[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+';
/** Letters of scripts that have upper and lower case, in an old version of Unicode. */
const CASED_LETTERS =
  'A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃';

interface WordRules {
  /**
   * Regexes that cut a text into words, one after the other: each one cuts the pieces that the previous ones left. Its matches become pieces, and
   * so do the texts between them.
   */
  readonly regexes: readonly string[];
  /** Composes characters (NFC), as the models' own tokenizers do. llama.cpp does not. */
  readonly composes?: boolean;
  /** Takes a word that is a token as this token, even if no merges make it. */
  readonly ignoresMerges?: boolean;
  readonly addsBos?: boolean;
}

/**
 * Rules by names that `tokenizer.ggml.pre` may have, from llama.cpp's `llama_vocab::impl::load` and `llm_tokenizer_bpe`. For the regexes that
 * llama.cpp only approximates, such as those that tell upper case from lower case, this table has the originals of the models' tokenizer.json.
 * A file without a name is of an old converter, which knew no rules; llama.cpp then uses `default`.
 */
const RULES: readonly (readonly [names: string, rules: WordRules])[] = [
  ['default', { regexes: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]'] }],
  [
    'gpt-2 phi-2 jais exaone4 gigachat a.x-4.0 mellum trillion granite-docling jina-es jina-de jina-v2-es jina-v2-de modern-bert',
    { regexes: [GPT2] },
  ],
  ['olmo mpt', { regexes: [GPT2], composes: true }],
  ['starcoder refact smollm codeshell exaone minerva-7b mellum2', { regexes: [DIGIT, GPT2] }],
  ['command-r', { regexes: [DIGIT, GPT2], composes: true }],
  [
    'llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano',
    { regexes: [gpt4(UP_TO_THREE_DIGITS)], ignoresMerges: true, addsBos: true },
  ],
  ['dbrx smaug-bpe glm4 chatglm-bpe', { regexes: [gpt4(UP_TO_THREE_DIGITS)] }],
  ['minicpm5', { regexes: [UP_TO_THREE_DIGITS, gpt4('\\p{N}+')], ignoresMerges: true }],
  ['qwen2', { regexes: [gpt4(DIGIT)], composes: true }],
  [
    'deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe',
    { regexes: [gpt4(DIGIT)] },
  ],
  [
    'qwen35',
    {
      regexes: [
        `${CONTRACTION}|${BEFORE_WORD}[\\p{L}\\p{M}]+|${DIGIT}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${LINES}|${SPACES}`,
      ],
      composes: true,
    },
  ],
  ['ufakzeka', { regexes: [[LETTERS, DIGIT, SYMBOLS, LINES, SPACES].join('|')] }],
  ['laguna', { regexes: ['[^\\n]+|[\\n]+', gpt4(DIGIT)] }],
  ['seed-coder', { regexes: [`${CONTRACTION}|${LETTERS}|${DIGIT}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${LINES}|${SPACES}`] }],
  [
    'exaone-moe',
    {
      regexes: [
        `${CONTRACTION}|${BEFORE_WORD}(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|${DIGIT}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|${SPACES}`,
      ],
    },
  ],
  [
    'jais-2',
    {
      regexes: [
        `${CONTRACTION}|${LETTERS}|${UP_TO_THREE_DIGITS}|${SYMBOLS}|${LINES}|${[512, 256, 128, 64, 32, 16, 8, 4, '1,2']
          .map((count) => `\\s{${count}}(?!\\S)`)
          .join('|')}|\\s`,
      ],
    },
  ],
  ['tekken', { regexes: [cased('', DIGIT)], ignoresMerges: true, addsBos: true }],
  ['gpt-4o llama4 kanana2 talkie minimax-m2', { regexes: [cased(`${CONTRACTION}?`, UP_TO_THREE_DIGITS)] }],
  [
    'deepseek-llm',
    {
      regexes: [
        '[\\r\\n]',
        `\\s?[${CASED_LETTERS}]+`,
        '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+',
        // The models' own regex is `\s+$`. The lookbehind changes no match, but it saves a search from each space of a long run.
        '(?<!\\s)\\s+$',
        '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+',
        '\\p{N}+',
      ],
    },
  ],
  [
    'deepseek-coder',
    { regexes: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+', DIGIT] },
  ],
  [
    'deepseek-v3 hunyuan-dense joyai-llm hy_v4',
    {
      regexes: [
        UP_TO_THREE_DIGITS,
        KANJI_AND_KANA,
        `${ASCII_SYMBOL_AND_WORD}|${MARKED_LETTERS}| ?[\\p{P}\\p{S}]+[\\r\\n]*|${LINES}|${SPACES}`,
      ],
    },
  ],
  [
    'spark2_5',
    {
      regexes: [
        UP_TO_THREE_DIGITS,
        KANJI_AND_KANA,
        `${ASCII_SYMBOL_AND_WORD}|${MARKED_LETTERS}| ?[\\p{P}\\p{S}]+|[\\r\\n]|${SPACES}`,
        DIGIT,
      ],
    },
  ],
  ['falcon', { regexes: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]'] }],
  ['bloom gpt3-finnish poro-chat', { regexes: [NOT_PUNCTUATION] }],
  ['viking', { regexes: [NOT_PUNCTUATION, DIGIT] }],
];
const WORDS: ReadonlyMap<string, WordRules> = new Map(
  RULES.flatMap(([names, rules]) => names.split(' ').map((name) => [name, rules])),
);

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
  const templates = chatTemplates(metadata);
  const nameOf = (id: number | undefined) => (id === undefined ? null : (keys.tokens[id] ?? null));
  const settings = {
    bos_token:
      addsBosToken(keys) || templates.some(({ template }) => template.includes('bos_token'))
        ? nameOf(keys.bos_token_id)
        : null,
    eos_token: nameOf(keys.eos_token_id),
    unk_token: nameOf(keys.unknown_token_id),
    pad_token: nameOf(keys.padding_token_id),
    add_bos_token: addsBosToken(keys),
    add_eos_token: keys.add_eos_token,
    // llama.cpp removes spaces before punctuation for some names of pre-tokenizers, but only in whole texts, not in the pieces of a stream.
    clean_up_tokenization_spaces: false,
    model_max_length: config.contextLength,
    ...(templates.length > 0 && {
      chat_template: templates.length === 1 && templates[0]?.name === 'default' ? templates[0].template : templates,
    }),
  };
  return { tokenizer: isPhi3(keys, metadata) ? withoutSpaceAfterTokens(tokenizer) : tokenizer, settings };
}

/** The chat templates: the default one first, if there is one, then those that have a name, such as `tool_use`. */
function chatTemplates(metadata: Metadata): { name: string; template: string }[] {
  const key = 'tokenizer.chat_template';
  const named = [...metadata].flatMap(([name, template]) =>
    name.startsWith(`${key}.`) && typeof template === 'string' ? [{ name: name.slice(key.length + 1), template }] : [],
  );
  const template = metadata.get(key);
  return typeof template === 'string' ? [{ name: 'default', template }, ...named] : named;
}

/** GGUF files do not state which tokens take the spaces after them. llama.cpp tells Phi-3 by its name, too; fine-tuned models have other names. */
function isPhi3({ model }: Keys, metadata: Metadata): boolean {
  const named = /phi-?3/i.test(String(metadata.get('general.name') ?? ''));
  return model === 'llama' && (named || metadata.get('general.architecture') === 'phi3');
}

/** Lets the added tokens, except three, take the spaces and newlines after them, as those of Phi-3 do. */
function withoutSpaceAfterTokens(tokenizer: { added_tokens?: unknown }): object {
  const added = (tokenizer.added_tokens ?? []) as { content: string }[];
  const exceptions = ['<unk>', '<s>', '<|endoftext|>'];
  return {
    ...tokenizer,
    added_tokens: added.map((token) => ({ ...token, rstrip: !exceptions.includes(token.content) })),
  };
}

/** Special tokens for `config.json`: the token that begins a text, and the tokens that end one. */
export function specialIds(metadata: Metadata): { bos: number | null; eos: number[] } {
  const keys = readKeys(metadata);
  return { bos: addsBosToken(keys) ? (keys.bos_token_id ?? null) : null, eos: endIds(keys) };
}

/**
 * Names of tokens that end a text or a turn, besides `END_NAMES`, and of those that end one file in a text of several files (fill-in-the-middle).
 * llama.cpp ends a text at these tokens, too (`special_eog_ids` in `llama_vocab::impl::load`).
 */
const GGUF_END_NAMES = [
  ...END_NAMES,
  ...['<end_of_turn>', '<|return|>', '<|call|>', '<|calls|>', '<|flush|>', '<turn|>', '<|tool_response>', '[e~['],
  ...['</s>', '<eos>', '[EOS]', '<EOT>', '_<EOT>', '[EOT]', '<end_of_utterance>', '<｜end▁of▁sentence｜>'],
  ...['<|fim_pad|>', '<fim-pad>', '<fim_pad>', '<PAD>', '[PAD]', '<|file_sep|>'],
  ...['<|fim_repo|>', '<|repo_name|>', '<fim-repo>', '<REPO>', '<reponame>'],
];

function endIds(keys: Keys): number[] {
  const { tokens } = keys;
  const stated = [
    keys.eos_token_id,
    keys.eot_token_id,
    keys.eom_token_id,
    keys.fim_pad_token_id,
    keys.fim_rep_token_id,
    keys.fim_sep_token_id,
  ]
    .filter((id) => id !== undefined)
    .filter((id) => id < tokens.length);
  const names = new Set(GGUF_END_NAMES);
  const named = tokens.flatMap((text, id) => (names.has(text) ? [{ text, id }] : []));
  const has = (name: string) => named.some(({ text }) => text === name);
  const calls = has('<|call|>') || has('<|calls|>');
  const isTypedControl = (id: number) => KINDS[keys.token_type?.[id] ?? CONTROL] === 'control';
  const beginsWithS = tokens[keys.bos_token_id ?? -1] === '<s>';
  return [...new Set([...stated, ...named.map(({ id }) => id)])].filter((id) => {
    switch (tokens[id]) {
      // In the formats of gpt-oss and Solar, `<|end|>` ends a message, and the turn may go on with another message.
      case '<|end|>':
        return !(calls && (has('<|return|>') || has('<|flush|>')));
      // In the vocabularies of Gemma and Qwen, `</s>` is a tag of HTML.
      case '</s>':
        return id === keys.eos_token_id || ((isTypedControl(id) || beginsWithS) && !has('<|tool_response>'));
      default:
        return true;
    }
  });
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
  return parsed.data.model === 'llama' ? withSentencePieceIds(parsed.data) : parsed.data;
}

/** Gives the special tokens that the file does not state the ids that SentencePiece has for them, if the file types these ids so. */
function withSentencePieceIds(keys: Keys): Keys {
  const typed = (id: number, kind: PieceKind) => (KINDS[keys.token_type?.[id] ?? 1] === kind ? id : undefined);
  return {
    ...keys,
    unknown_token_id: keys.unknown_token_id ?? typed(0, 'unknown'),
    bos_token_id: keys.bos_token_id ?? typed(1, 'control'),
    eos_token_id: keys.eos_token_id ?? typed(2, 'control'),
  };
}

function addsBosToken(keys: Keys): boolean {
  return keys.add_bos_token ?? (keys.model === 'llama' || WORDS.get(keys.pre)?.addsBos === true);
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
  return tokens.map((text, id) => {
    // Some vocabularies fill ids with empty texts.
    if (text === '') return { text: `[EMPTY_${id}]`, score: 0, kind: 'unused' };
    const kind = control.has(id) ? 'control' : (KINDS[types?.[id] ?? 1] ?? 'normal');
    return { text, score: scores?.[id] ?? 0, kind };
  });
}

function byteLevelTokenizer({ pre, merges }: Keys, pieces: readonly Piece[]): object {
  const rules = WORDS.get(pre);
  if (rules === undefined) {
    throw new ModelError(
      'unsupported-model',
      `the GGUF file has a tokenizer that cuts words as "${pre}" ("tokenizer.ggml.pre")`,
      {
        hint: `known: ${[...WORDS.keys()].join(', ')}; the model in Hugging Face layout has its own rules with it`,
      },
    );
  }
  if (merges === undefined) {
    throw new ModelError('malformed-tokenizer', 'the GGUF file lacks "tokenizer.ggml.merges"');
  }
  const ordinary = new Map([...vocabularyOf(pieces)].filter(([, id]) => pieces[id]?.kind === 'normal'));
  const added = pieces.flatMap(({ text, kind }, id) =>
    kind === 'control' || kind === 'unknown' || kind === 'added' ? [addedToken(id, text, kind !== 'added')] : [],
  );
  // Without merges that make other tokens: a text could make a control token of its parts.
  const isOrdinary = ([left, right]: readonly [string, string]) =>
    ordinary.has(left) && ordinary.has(right) && ordinary.has(left + right);
  return {
    version: '1.0',
    added_tokens: added,
    normalizer: rules.composes ? { type: 'NFC' } : null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        ...rules.regexes.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
        { ...BYTE_LEVEL, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: BYTE_LEVEL,
    model: {
      type: 'BPE',
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: rules.ignoresMerges ?? false,
      vocab: Object.fromEntries(ordinary),
      merges: merges.map(pairOf).filter(isOrdinary),
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
