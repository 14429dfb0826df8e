import { join, resolve } from 'node:path';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { z } from 'zod';
import type { ChatMessage } from '#wit/generated/host.ts';
import { compileChatTemplate, pickChatTemplate, type TemplateVariables } from './chat-template.ts';
import { withControlTokens } from './control-tokens.ts';
import { causeText, issueText, ModelError } from './errors.ts';
import { readJson, readOptionalJson, readOptionalText } from './load.ts';
import { createTokenStream, type TokenStream } from './token-stream.ts';
import { tokenizerFileSchema } from './tokenizer-file.ts';
import { splitLlava } from './vision/llava.ts';

export type { TemplateVariables } from './chat-template.ts';

/** Converts text to token ids and back, as the model's own tokenizer.json defines. */
export interface Tokenizer {
  /**
   * Ids of `text`, without added tokens around it. Special tokens written in the text (`<|im_end|>`) are recognised only when `special` is
   * true; otherwise they are ordinary text, so that a user's text cannot end a turn.
   */
  encode(text: string, options?: { special?: boolean }): Uint32Array;
  /** Text of `tokens`; special tokens are left out unless `special`. @throws RangeError for an id outside the vocabulary */
  decode(tokens: Uint32Array | readonly number[], options?: { special?: boolean }): string;
  /**
   * A detokenizer for tokens that arrive one after the other. With `continuation`, the text continues an earlier text, so SentencePiece's
   * space before the first word stays.
   */
  stream(options?: { special?: boolean; continuation?: boolean }): TokenStream;
  /**
   * All ids are below this number: the larger of the tokenizer's size and the number of rows of the model's output. The model has no row for
   * ids beyond its output.
   */
  readonly vocabularySize: number;
  /** Bytes that a token stands for: a special token's name, nothing for a padded id. @throws RangeError outside the vocabulary */
  tokenBytes(id: number): Uint8Array;
  readonly special: SpecialTokens;
  /** Spellings of the added tokens, special or not. */
  readonly addedTokens: readonly string[];
  /** Ids of special tokens, which decoding leaves out; `stripsLeadingSpace` is true when decoding drops a text's first space. */
  readonly decoding: { readonly specialIds: ReadonlySet<number>; readonly stripsLeadingSpace: boolean };
  /** Jinja source, or null when the model has none. */
  readonly chatTemplate: string | null;
  /**
   * The conversation as text, to be encoded with `special`.
   *
   * @throws ModelError `no-chat-template`, or `invalid-messages` with the template's message
   */
  applyChatTemplate(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string;
  /**
   * The chat template applied to any variables (`messages`, `tools`, `add_generation_prompt`, …), to be encoded with `special`.
   *
   * @throws ModelError `no-chat-template`, or `invalid-messages` with the template's message
   */
  renderChat(variables: TemplateVariables): string;
}

/** Ids of tokens with a special role, like `special-token-ids` of `wit/tokenize.wit`. Holds only JSON values, because sandboxes get it as JSON. */
export interface SpecialTokens {
  readonly bos: number | null;
  /** Any of these ends a text. */
  readonly eos: readonly number[];
  readonly pad: number | null;
  readonly unknown: number | null;
}

const tokenizerSchema = tokenizerFileSchema.extend({
  normalizer: z.unknown().default(null),
  decoder: z.unknown().default(null),
});
const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
/** A check of our own, because Zod's record takes 40 ms for 32,000 ids. */
const vocabularySchema = z.custom<object>((value) => isObject(value) && Object.values(value).every(Number.isInteger));
const bpeSchema = z.looseObject({ type: z.literal('BPE'), vocab: vocabularySchema });
const specialName = z
  .union([z.string(), z.looseObject({ content: z.string() }).transform(({ content }) => content)])
  .nullish()
  .catch(null);
const settingsSchema = z.looseObject({
  bos_token: specialName,
  eos_token: specialName,
  pad_token: specialName,
  unk_token: specialName,
  add_bos_token: z.boolean().nullish().catch(null),
  chat_template: z.unknown().optional(),
});
const idsSchema = z.looseObject({
  vocab_size: z.int().min(1).nullish(),
  bos_token_id: z.int().nullish(),
  eos_token_id: z.union([z.int(), z.array(z.int())]).nullish(),
  pad_token_id: z.int().nullish(),
});

/**
 * Loads the tokenizer of a model directory: `tokenizer.json`, with `tokenizer_config.json`, `special_tokens_map.json`, `config.json`,
 * `generation_config.json`, `chat_template.jinja` and `chat_template.json` where they exist.
 *
 * @throws ModelError `missing-file`, `malformed-config`, `malformed-tokenizer` or `unsupported-model`
 */
export async function loadTokenizer(directory: string): Promise<Tokenizer> {
  const root = resolve(directory);
  const file = join(root, 'tokenizer.json');
  const parsed = tokenizerSchema.safeParse(await readJson(file));
  if (!parsed.success) throw new ModelError('malformed-tokenizer', `${file}: ${issueText(parsed.error)}`);
  const settings = settingsSchema.parse({
    ...asObject(await readOptionalJson(root, 'special_tokens_map.json')),
    ...asObject(await readOptionalJson(root, 'tokenizer_config.json')),
  });
  const config = await readOptionalJson(root, 'config.json');
  // Ids of config.json, then those of generation_config.json. A model with a vision tower has its text model's ids in a
  // part of config.json.
  const ids = [splitLlava(config)?.text ?? config, await readOptionalJson(root, 'generation_config.json')].map(
    (json) => idsSchema.safeParse(json).data ?? {},
  );
  const processor = settingsSchema.parse(asObject(await readOptionalJson(root, 'chat_template.json')));
  const template =
    (await readOptionalText(root, 'chat_template.jinja')) ??
    pickChatTemplate(processor.chat_template) ??
    pickChatTemplate(settings.chat_template);
  const controlTokens = new Set<number | string | null | undefined>([
    settings.bos_token,
    settings.eos_token,
    settings.pad_token,
    settings.unk_token,
    ...ids.flatMap(({ bos_token_id, eos_token_id, pad_token_id }) => [bos_token_id, eos_token_id, pad_token_id].flat()),
  ]);
  const added_tokens = withControlTokens(parsed.data.added_tokens, controlTokens);
  return build({ ...parsed.data, added_tokens }, settings, ids, template);
}

function build(
  json: z.infer<typeof tokenizerSchema>,
  settings: z.infer<typeof settingsSchema>,
  ids: readonly Partial<z.infer<typeof idsSchema>>[],
  chatTemplate: string | null,
): Tokenizer {
  const decoder = parseDecoder(json.decoder);
  const { recognising, literal } = createEncoders(json);
  const specialIds = new Set(json.added_tokens.filter(({ special }) => special).map(({ id }) => id));
  const spellings = new Map(json.added_tokens.map(({ id, content }) => [id, content]));
  const knownIds = recognising.model?.vocab.length ?? 0;
  const vocabularySize = Math.max(knownIds, ids[0]?.vocab_size ?? 0);
  if (vocabularySize > MAX_VOCABULARY) {
    const what = `tokenizer.json: a vocabulary of ${vocabularySize} tokens; the limit is ${MAX_VOCABULARY}`;
    throw new ModelError('malformed-tokenizer', what);
  }

  const bytesById: (Uint8Array | undefined)[] = new Array(vocabularySize);
  const ordinaryBytes = (id: number): Uint8Array => {
    const token = recognising.id_to_token(id);
    return token === undefined ? NOTHING : decoder.bytesOf(token);
  };
  const tokenBytes = (id: number): Uint8Array => {
    const cachedBytes = bytesById[id];
    if (cachedBytes !== undefined) return cachedBytes;
    if (!Number.isInteger(id) || id < 0 || id >= vocabularySize) {
      throw new RangeError(`token id ${id} is outside the vocabulary of ${vocabularySize}`);
    }
    // A special token stands for its name; the decoder's rules apply to other tokens only.
    const special = specialIds.has(id) ? spellings.get(id) : undefined;
    const computedBytes = special === undefined ? ordinaryBytes(id) : Buffer.from(special);
    bytesById[id] = computedBytes;
    return computedBytes;
  };

  const visibleBytes = (id: number) => (specialIds.has(id) ? NOTHING : tokenBytes(id));

  const stream: Tokenizer['stream'] = ({ special = false, continuation = false } = {}) =>
    createTokenStream(special ? tokenBytes : visibleBytes, decoder.stripsLeadingSpace && !continuation);
  // Some repositories name token ids for which their model has no row, or -1 for no token.
  const outputRows = ids[0]?.vocab_size ?? vocabularySize;
  const withRow = (id: number | null | undefined): number | null =>
    id !== null && id !== undefined && id >= 0 && id < outputRows ? id : null;
  const idOf = (name: string | null | undefined): number | null =>
    name === null || name === undefined ? null : withRow(recognising.token_to_id(name));
  // As in transformers, the tokenizer's own files, not config.json, decide whether a text begins with BOS: Qwen's tokenizer_config.json says
  // `"bos_token": null`, MiniMind2's `"add_bos_token": false`, and SmolLM2's tokenizer.json has a post-processor that adds nothing. If texts do
  // not begin with the BOS token, it counts as an EOS token, and templates may still name it.
  const beginsWithBos =
    settings.bos_token !== null && (settings.add_bos_token ?? putsSpecialFirst(json.post_processor) ?? true);
  const bosId = idOf(settings.bos_token) ?? withRow(ids[0]?.bos_token_id);
  const eosIds = [
    idOf(settings.eos_token),
    ...ids.flatMap(({ eos_token_id }) => [eos_token_id ?? []].flat().map(withRow)),
  ];
  if (!beginsWithBos) eosIds.push(bosId);
  const render =
    chatTemplate === null
      ? null
      : compileChatTemplate(chatTemplate, {
          bos_token: settings.bos_token ?? '',
          eos_token: settings.eos_token ?? '',
          pad_token: settings.pad_token ?? '',
          unk_token: settings.unk_token ?? '',
        });

  return {
    encode: (text, { special = false } = {}) =>
      Uint32Array.from((special ? recognising : literal).encode(text, { add_special_tokens: false }).ids),
    decode(tokens, options) {
      const decoderStream = stream(options);
      return decoderStream.push(tokens) + decoderStream.finish();
    },
    stream,
    vocabularySize,
    tokenBytes,
    special: {
      bos: beginsWithBos ? bosId : null,
      eos: [...new Set(eosIds.filter((id) => id !== null))],
      pad: idOf(settings.pad_token) ?? withRow(ids[0]?.pad_token_id),
      unknown: idOf(settings.unk_token),
    },
    addedTokens: [...spellings.values()],
    decoding: { specialIds, stripsLeadingSpace: decoder.stripsLeadingSpace },
    chatTemplate,
    applyChatTemplate(messages, addGenerationPrompt) {
      const plain = messages.map(({ role, content }) => ({ role, content }));
      return this.renderChat({ messages: plain, add_generation_prompt: addGenerationPrompt });
    },
    renderChat(variables) {
      if (render === null)
        throw new ModelError('no-chat-template', 'this model has no chat template', {
          hint: 'write the prompt as plain text',
        });
      return render(variables);
    },
  };
}

const NOTHING = new Uint8Array(0);
/** Far above any real model, as in `config.ts`. Without a limit, one token with a huge id would make callers loop over that many ids. */
const MAX_VOCABULARY = 1 << 24;

/** One encoder that recognises special tokens in text, and one that does not. They share the vocabulary, because it is large. */
function createEncoders(json: z.infer<typeof tokenizerSchema>): {
  recognising: HuggingFaceTokenizer;
  literal: HuggingFaceTokenizer;
} {
  try {
    const splitter = json.pre_tokenizer === null ? wordSplit(json.model) : asInRust(json.pre_tokenizer);
    const patchedJson = { ...json, pre_tokenizer: splitter };
    const recognising = new HuggingFaceTokenizer(patchedJson, {});
    const ordinaryTokens = json.added_tokens.filter(({ special }) => !special);
    const literal = new HuggingFaceTokenizer(
      { ...patchedJson, added_tokens: ordinaryTokens, model: { type: 'BPE', vocab: {}, merges: [] } },
      {},
    );
    literal.model = recognising.model;
    if (mergesPairs(recognising.model)) mergeLongWordsFaster(recognising.model, json.model);
    return { recognising, literal };
  } catch (cause) {
    throw new ModelError('malformed-tokenizer', `tokenizer.json cannot be used: ${causeText(cause)}`, { cause });
  }
}

/** The library's byte-pair model, which cuts a word into the spellings of its tokens. */
interface PairMerger {
  bpe(word: string): string[];
}

function mergesPairs(model: object | null): model is PairMerger {
  return model !== null && 'bpe' in model && typeof model.bpe === 'function';
}

function mergeLongWordsFaster(model: PairMerger, json: object): void {
  const originalBpe = model.bpe.bind(model);
  // Created at the first long word, because the merger's tables are as large as the vocabulary.
  let merge: ReturnType<typeof createLongWordMerger> | undefined;
  model.bpe = (word) => {
    if (word.length < LONG_WORD) return originalBpe(word);
    if (merge === undefined) merge = createLongWordMerger(json);
    return merge === null ? originalBpe(word) : merge(word);
  };
}

const processorSchema = z.looseObject({ type: z.string(), single: z.array(z.unknown()).default([]) });
const sequenceSchema = z.looseObject({ type: z.literal('Sequence'), processors: z.array(z.unknown()) });
const specialSchema = z.looseObject({ SpecialToken: z.unknown() });

/** True when tokenizer.json's post-processor puts a special token before every text; undefined without a post-processor. */
function putsSpecialFirst(postProcessor: unknown): boolean | undefined {
  if (postProcessor === null) return undefined;
  const { processors = [postProcessor] } = sequenceSchema.safeParse(postProcessor).data ?? {};
  return processors.some((each) => {
    const { type, single = [] } = processorSchema.safeParse(each).data ?? {};
    return type === 'TemplateProcessing' && specialSchema.safeParse(single[0]).success;
  });
}

/**
 * SentencePiece models have no pre-tokenizer, so the library would merge a whole text as one word. When no token has a `▁` after
 * another character, no merge reaches from one word into the next, so the library may merge (and cache) words one by one.
 */
function wordSplit(model: object): object | null {
  const vocabulary = bpeSchema.safeParse(model);
  if (!vocabulary.success || Object.keys(vocabulary.data.vocab).some((token) => /[^▁]▁/u.test(token))) return null;
  return { type: 'Split', pattern: { Regex: '▁*[^▁]+|▁+' }, behavior: 'Isolated', invert: true };
}

const asObject = (json: unknown): object => (isObject(json) ? json : {});

/** A `tokenizer.json` decoder, reduced to what all supported decoders do: bytes per token, and an optional strip of one leading space. */
export interface TokenDecoder {
  /** Bytes that a token contributes, independent of its neighbours. */
  bytesOf(token: string): Uint8Array;
  /** True when decoding must remove a text's first space, which SentencePiece adds before the first word. */
  readonly stripsLeadingSpace: boolean;
}

const SPACE_MARK = '▁';
const MAX_NESTED_SEQUENCES = 8;
const encoder = new TextEncoder();

const decoderSchema = z.looseObject({
  type: z.string(),
  decoders: z.array(z.unknown()).optional(),
  pattern: z.looseObject({ String: z.string().optional() }).optional(),
  content: z.string().optional(),
  start: z.int().optional(),
  stop: z.int().optional(),
  replacement: z.string().optional(),
  prepend_scheme: z.string().optional(),
  add_prefix_space: z.boolean().optional(),
});

/**
 * Reads the `decoder` of a tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2) or SentencePiece with byte fallback
 * (Llama 2, Mistral, TinyLlama).
 *
 * @throws ModelError `unsupported-model` for decoders whose output cannot be cut into bytes per token
 */
export function parseDecoder(json: unknown): TokenDecoder {
  const replacements: [from: string, to: string][] = [];
  let isByteLevel = false;
  let hasByteFallback = false;
  let stripsLeadingSpace = false;
  for (const step of flatten(json)) {
    switch (step.type) {
      case 'ByteLevel':
        isByteLevel = true;
        break;
      case 'ByteFallback':
        hasByteFallback = true;
        break;
      case 'Fuse':
        break;
      case 'Replace':
        if (step.pattern?.String === undefined) throw unsupported('a Replace of a regular expression');
        replacements.push([step.pattern.String, step.content ?? '']);
        break;
      case 'Strip':
        if (step.content !== ' ' || (step.start ?? 0) > 1 || (step.stop ?? 0) !== 0) throw unsupported('this Strip');
        stripsLeadingSpace = step.start === 1;
        break;
      case 'Metaspace':
        replacements.push([step.replacement ?? SPACE_MARK, ' ']);
        stripsLeadingSpace = step.prepend_scheme !== 'never' && step.add_prefix_space !== false;
        break;
      default:
        throw unsupported(`"${step.type}"`);
    }
  }
  const bytesOf = isByteLevel
    ? byteLevelBytes
    : (token: string) => (hasByteFallback && fallbackByte(token)) || encoder.encode(replaceAll(token, replacements));
  return { bytesOf, stripsLeadingSpace };
}

function flatten(json: unknown, depth = 0): z.infer<typeof decoderSchema>[] {
  const parsed = decoderSchema.safeParse(json);
  if (!parsed.success) throw unsupported('a tokenizer without a decoder');
  if (parsed.data.type !== 'Sequence') return [parsed.data];
  if (depth === MAX_NESTED_SEQUENCES) throw unsupported(`a Sequence within ${MAX_NESTED_SEQUENCES} others`);
  return (parsed.data.decoders ?? []).flatMap((each) => flatten(each, depth + 1));
}

function unsupported(what: string): ModelError {
  return new ModelError('unsupported-model', `tokenizer.json: ${what} as decoder is not supported`, {
    hint: 'supported: ByteLevel, and SentencePiece with byte fallback',
  });
}

function replaceAll(token: string, replacements: readonly [string, string][]): string {
  return replacements.reduce((text, [from, to]) => text.replaceAll(from, to), token);
}

function fallbackByte(token: string): Uint8Array | undefined {
  return /^<0x[0-9A-Fa-f]{2}>$/.test(token) ? Uint8Array.of(Number.parseInt(token.slice(3, 5), 16)) : undefined;
}

/** GPT-2's table: printable Latin-1 characters stand for their bytes; characters from U+0100 on stand for the other bytes, in order. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = (() => {
  const isPrintable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const table = new Map<string, number>();
  let nextCodePoint = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const codePoint = isPrintable(byte) ? byte : nextCodePoint++;
    table.set(String.fromCodePoint(codePoint), byte);
  }
  return table;
})();

function byteLevelBytes(token: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = BYTE_OF_CHARACTER.get(character);
    // A token with a character outside the table, such as an added token, stands for itself.
    if (byte === undefined) return encoder.encode(token);
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/** Shortest word that this merger takes, in characters. The tokenizer library merges shorter words itself and caches the results. */
export const LONG_WORD = 48;

const mergesSchema = z.looseObject({
  type: z.literal('BPE'),
  vocab: z.record(z.string(), z.int().min(0)),
  merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
  continuing_subword_prefix: z.string().nullish(),
  end_of_word_suffix: z.string().nullish(),
});

/** With these limits, a pair of ids, or a rank with a position, fits one number without rounding. */
const MAX_IDS = 2 ** 21;
const MAX_POSITIONS = 2 ** 27;
const UNKNOWN = -1;

/**
 * Byte-pair merging of one long word, over ids instead of strings. The library needs microseconds per character, so a long text without spaces
 * would block the thread. The result equals that of the plain algorithm: always merge the pair with the lowest rank, and of several such pairs
 * the leftmost.
 *
 * @param model the `model` of a tokenizer.json
 * @returns a function that cuts a word into pieces; null when this algorithm does not support the model
 */
export function createLongWordMerger(model: unknown): ((word: string) => string[]) | null {
  const parsed = mergesSchema.safeParse(model);
  if (!parsed.success || parsed.data.continuing_subword_prefix || parsed.data.end_of_word_suffix) return null;
  const { vocab, merges } = parsed.data;
  const ids = new Map(Object.entries(vocab));
  const spelling: string[] = [];
  for (const [token, id] of ids) {
    if (id >= MAX_IDS) return null;
    spelling[id] = token;
  }
  /** Pair of ids → rank; a later duplicate wins, as in the library. */
  const ranks = new Map<number, number>();
  const mergedIds = new Int32Array(merges.length);
  for (const [rank, merge] of merges.entries()) {
    const [left = '', right = ''] = typeof merge === 'string' ? merge.split(' ', 2) : merge;
    const [leftId, rightId, mergedId] = [ids.get(left), ids.get(right), ids.get(left + right)];
    if (leftId === undefined || rightId === undefined || mergedId === undefined) return null;
    ranks.set(leftId * MAX_IDS + rightId, rank);
    mergedIds[rank] = mergedId;
  }
  return (word) => mergeWord(word, ids, spelling, ranks, mergedIds);
}

function mergeWord(
  word: string,
  ids: ReadonlyMap<string, number>,
  spelling: readonly string[],
  ranks: ReadonlyMap<number, number>,
  mergedIds: Int32Array,
): string[] {
  const characters = Array.from(word);
  const { length } = characters;
  if (length >= MAX_POSITIONS) throw new RangeError(`a word of ${length} characters is too long to tokenize`);
  const symbols = Int32Array.from(characters, (character) => ids.get(character) ?? UNKNOWN);
  // `next` and `previous` link the positions that still have a symbol. A merged symbol stays at the position of its left part.
  const next = Int32Array.from({ length }, (_, i) => i + 1);
  const previous = Int32Array.from({ length }, (_, i) => i - 1);
  const removed = new Uint8Array(length);
  const rankAt = (position: number): number | undefined => {
    const right = next[position] as number;
    if (right >= length) return undefined;
    const [leftId, rightId] = [symbols[position] as number, symbols[right] as number];
    return leftId === UNKNOWN || rightId === UNKNOWN ? undefined : ranks.get(leftId * MAX_IDS + rightId);
  };
  const queue = new NumberQueue();
  const offer = (position: number) => {
    const rank = rankAt(position);
    // The key orders offers by rank, then by position.
    if (rank !== undefined) queue.push(rank * MAX_POSITIONS + position);
  };
  for (let position = 0; position < length - 1; position++) offer(position);

  for (let key = queue.pop(); key !== undefined; key = queue.pop()) {
    const position = key % MAX_POSITIONS;
    const rank = (key - position) / MAX_POSITIONS;
    // Skip a pair that an earlier merge has changed: that merge has offered the new pair at this position.
    if (removed[position] === 1 || rankAt(position) !== rank) continue;
    const right = next[position] as number;
    const afterRight = next[right] as number;
    symbols[position] = mergedIds[rank] as number;
    removed[right] = 1;
    next[position] = afterRight;
    if (afterRight < length) previous[afterRight] = position;
    offer(position);
    const previousPosition = previous[position] as number;
    if (previousPosition >= 0) offer(previousPosition);
  }

  const pieces: string[] = [];
  for (let position = 0; position < length; position = next[position] as number) {
    const id = symbols[position] as number;
    pieces.push((id === UNKNOWN ? characters[position] : spelling[id]) as string);
  }
  return pieces;
}

/** A binary heap of numbers, smallest first. */
class NumberQueue {
  readonly #heap: number[] = [];

  push(value: number): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(value);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const parentValue = heap[parent] as number;
      if (parentValue <= value) break;
      heap[index] = parentValue;
      index = parent;
    }
    heap[index] = value;
  }

  pop(): number | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    const { length } = heap;
    if (last === undefined || length === 0) return top;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= length) break;
      if (child + 1 < length && (heap[child + 1] as number) < (heap[child] as number)) child++;
      const childValue = heap[child] as number;
      if (childValue >= last) break;
      heap[index] = childValue;
      index = child;
    }
    heap[index] = last;
    return top;
  }
}

const digitsSchema = z.looseObject({ type: z.literal('Digits'), individual_digits: z.boolean().default(false) });
const unprefixedSchema = z.looseObject({ type: z.literal('Metaspace'), add_prefix_space: z.literal(false) });
const splitsSchema = z.looseObject({ type: z.literal('Sequence'), pretokenizers: z.array(z.unknown()) });

/**
 * Rewrites a pre-tokenizer so that the JavaScript tokenizer library splits text as the Rust library does. Two types differ: the JavaScript
 * `Digits` splits at 0 to 9 only, the Rust one at the numbers of all scripts; and the JavaScript `Metaspace` ignores `add_prefix_space`.
 */
export function asInRust(preTokenizer: unknown): unknown {
  const sequence = splitsSchema.safeParse(preTokenizer).data;
  if (sequence) return { ...sequence, pretokenizers: sequence.pretokenizers.map(asInRust) };
  const unprefixed = unprefixedSchema.safeParse(preTokenizer).data;
  if (unprefixed) return { ...unprefixed, prepend_scheme: 'never' };
  const digits = digitsSchema.safeParse(preTokenizer).data;
  if (!digits) return preTokenizer;
  const Regex = digits.individual_digits ? '\\p{N}' : '\\p{N}+';
  return { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false };
}
