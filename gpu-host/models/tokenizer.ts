import { join, resolve } from 'node:path';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { z } from 'zod';
import type { ChatMessage } from '#wit/generated/host.ts';
import { compileChatTemplate, pickChatTemplate, type TemplateVariables } from './chat-template.ts';
import { withControlTokens } from './control-tokens.ts';
import { parseDecoder } from './detokenizer.ts';
import { causeText, issueText, ModelError } from './errors.ts';
import { readJson, readOptionalJson, readOptionalText } from './load.ts';
import { createLongWordMerger, LONG_WORD } from './long-words.ts';
import { asInRust } from './pre-tokenizer.ts';
import { createTokenStream, type TokenStream } from './token-stream.ts';
import { tokenizerFileSchema } from './tokenizer-file.ts';
import { splitLlava } from './vision/llava.ts';

export type { TemplateVariables } from './chat-template.ts';
export type { TokenStream } from './token-stream.ts';

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
