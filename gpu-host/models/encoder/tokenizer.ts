import { join, resolve } from 'node:path';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { z } from 'zod';
import { causeText, issueText, ModelError } from '../errors.ts';
import { readJson } from '../load.ts';
import { asInRust } from '../tokenizer.ts';
import { tokenizerFileSchema } from '../tokenizer-file.ts';
import type { EncoderConfig } from './config.ts';

/** A text, or a pair of texts, as an encoder takes it. */
export interface EncodedText {
  /** Ids with special tokens, at most `contextLength`. */
  readonly tokens: Uint32Array;
  /** The segment of each token. */
  readonly types: Uint8Array;
  /** True when the end of a text did not fit and was left out. */
  readonly isCut: boolean;
}

/** The part of an encoder's config that its tokenizer needs. */
export type EncoderShape = Pick<EncoderConfig, 'contextLength' | 'tokenTypes'>;

/** Converts texts to the inputs of an encoder, as the model's own tokenizer.json defines. */
export interface EncoderTokenizer {
  /** Names of special tokens in a text are ordinary text: a text cannot end itself or begin the next one. */
  encode(text: string): EncodedText;
  /** A pair that is too long loses tokens at the end of the longer text first, as in transformers (`longest_first`). */
  encodePair(first: string, second: string): EncodedText;
}

/**
 * Number of a text's characters to tokenize at first, and at most, for each token of the context. The library takes seconds for a text of some
 * hundred thousand characters, and its stack overflows with some hundred thousand tokens.
 */
const CHARACTERS_PER_TOKEN = { first: 8, max: 64 };
/** Number of tokens to read beyond the context, because a cut inside a word changes the last tokens before the cut. */
const MARGIN = 64;
const MAX_NESTED_SEQUENCES = 8;

/** An element of a template: special tokens, or the tokens of the first or second text. `type` is the segment. */
type Piece = { readonly type: number } & ({ readonly ids: readonly number[] } | { readonly text: 0 | 1 });

const tokenizerSchema = tokenizerFileSchema.extend({
  model: z.looseObject({
    type: z.string().nullish(),
    unk_token: z.string().nullish(),
    unk_id: z.int().min(0).nullish(),
  }),
});

const pieceSchema = z.union([
  z.object({ SpecialToken: z.object({ id: z.string(), type_id: z.int().min(0).max(255) }) }),
  z.object({ Sequence: z.object({ id: z.enum(['A', 'B']), type_id: z.int().min(0).max(255) }) }),
]);
const templateSchema = z.looseObject({
  type: z.literal('TemplateProcessing'),
  single: z.array(pieceSchema).max(32),
  pair: z.array(pieceSchema).max(32),
  special_tokens: z.record(z.string(), z.looseObject({ ids: z.array(z.int().min(0)) })),
});
const edge = z.tuple([z.string(), z.int().min(0)]);
const edgesSchema = z.looseObject({ type: z.enum(['BertProcessing', 'RobertaProcessing']), cls: edge, sep: edge });
const sequenceSchema = z.looseObject({ type: z.literal('Sequence'), processors: z.array(z.unknown()).max(16) });

/**
 * Loads the tokenizer of an encoder's directory.
 *
 * @throws ModelError `missing-file`, `malformed-tokenizer` or `unsupported-model`
 */
export async function loadEncoderTokenizer(directory: string, config: EncoderShape): Promise<EncoderTokenizer> {
  const file = join(resolve(directory), 'tokenizer.json');
  const json = await readJson(file);
  const parsed = tokenizerSchema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-tokenizer', `${file}: ${issueText(parsed.error)}`);
  const { added_tokens: addedTokens, model, post_processor: processor } = parsed.data;
  const templates = templatesOf(processor, file);
  if (templates === undefined) {
    throw new ModelError('unsupported-model', `${file}: its post_processor does not say where special tokens stand`, {
      hint: 'supported: TemplateProcessing, BertProcessing, RobertaProcessing',
    });
  }
  for (const [kind, pieces] of Object.entries(templates)) {
    const texts = pieces.flatMap((piece) => ('text' in piece ? piece.text : []));
    if (specialCount(pieces) >= config.contextLength || new Set(texts).size < texts.length) {
      const problem = `its template of a ${kind} names a text twice or has ${specialCount(pieces)} special tokens`;
      throw new ModelError('malformed-tokenizer', `${file}: ${problem}`);
    }
  }
  let library: HuggingFaceTokenizer;
  try {
    const ordinary = addedTokens.filter(({ special }) => !special);
    library = new HuggingFaceTokenizer(
      { ...parsed.data, added_tokens: ordinary, pre_tokenizer: asInRust(parsed.data.pre_tokenizer) },
      {},
    );
  } catch (cause) {
    throw new ModelError('malformed-tokenizer', `${file} cannot be used: ${causeText(cause)}`, { cause });
  }
  const specialIds = new Set(addedTokens.filter((token) => token.special).map(({ id }) => id));
  const unknownId = model.unk_id ?? library.token_to_id(model.unk_token ?? '');
  // The library does not know the special tokens, but the vocabulary may have their names as pieces. These become the unknown token.
  const idsOfWholeText = (text: string): number[] =>
    (library.encode(text, { add_special_tokens: false }).ids as number[])
      .map((id) => (specialIds.has(id) ? unknownId : id))
      .filter((id) => id !== undefined);
  const { contextLength, tokenTypes } = config;
  const maxCharacters = contextLength * CHARACTERS_PER_TOKEN.max;
  /** Tokenizes a prefix of the text, and doubles the prefix until there are enough tokens. */
  const idsOf = (text: string): number[] => {
    const maxEnd = Math.min(text.length, maxCharacters);
    for (let end = contextLength * CHARACTERS_PER_TOKEN.first; ; end *= 2) {
      const ids = idsOfWholeText(text.slice(0, Math.min(end, maxEnd)));
      if (end >= maxEnd || ids.length >= contextLength + MARGIN) return ids;
    }
  };
  const build = (pieces: readonly Piece[], ...sourceTexts: readonly string[]): EncodedText => {
    const texts = sourceTexts.map((text) => idsOf(text));
    const [first = [], second = []] = texts;
    const keptLengths = fitPair(first.length, second.length, contextLength - specialCount(pieces));
    const tokens: number[] = [];
    const types: number[] = [];
    for (const piece of pieces) {
      const ids = 'ids' in piece ? piece.ids : (texts[piece.text] ?? []).slice(0, keptLengths[piece.text]);
      for (const id of ids) {
        tokens.push(id);
        // A model without a row for this segment, such as RoBERTa, uses row 0.
        types.push(tokenTypes > piece.type ? piece.type : 0);
      }
    }
    const isCut =
      keptLengths[0] < first.length ||
      keptLengths[1] < second.length ||
      sourceTexts.some(({ length }) => length > maxCharacters);
    return { tokens: Uint32Array.from(tokens), types: Uint8Array.from(types), isCut };
  };
  return {
    encode: (text) => build(templates.single, text),
    encodePair: (first, second) => build(templates.pair, first, second),
  };
}

/**
 * The numbers of tokens that the two texts of a pair keep, at most `room` together: the longer text loses tokens first. When both are too long,
 * an odd token goes to the longer text, or to the second of equally long texts. Pure.
 */
export function fitPair(first: number, second: number, room: number): readonly [number, number] {
  if (first + second <= room) return [first, second];
  const shorter = Math.min(first, second, Math.floor(room / 2));
  return first > second ? [room - shorter, shorter] : [shorter, room - shorter];
}

function specialCount(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, piece) => sum + ('ids' in piece ? piece.ids.length : 0), 0);
}

/** @throws ModelError `malformed-tokenizer` */
function templatesOf(
  processor: unknown,
  file: string,
  depth = 0,
): { readonly single: Piece[]; readonly pair: Piece[] } | undefined {
  const sequence = sequenceSchema.safeParse(processor);
  if (sequence.success) {
    if (depth === MAX_NESTED_SEQUENCES) return undefined;
    for (const each of sequence.data.processors) {
      const templates = templatesOf(each, file, depth + 1);
      if (templates) return templates;
    }
    return undefined;
  }
  const template = templateSchema.safeParse(processor);
  if (template.success) {
    const { single, pair } = template.data;
    const specials = new Map(Object.entries(template.data.special_tokens));
    const idsOf = (name: string): readonly number[] => {
      const special = specials.get(name);
      if (special) return special.ids;
      throw new ModelError('malformed-tokenizer', `${file}: its template names the unknown special token "${name}"`);
    };
    const pieces = (templatePieces: typeof single): Piece[] =>
      templatePieces.map((piece) =>
        'Sequence' in piece
          ? { text: piece.Sequence.id === 'A' ? 0 : 1, type: piece.Sequence.type_id }
          : { ids: idsOf(piece.SpecialToken.id), type: piece.SpecialToken.type_id },
      );
    return { single: pieces(single), pair: pieces(pair) };
  }
  const edges = edgesSchema.safeParse(processor);
  if (!edges.success) return undefined;
  const [cls, sep] = [edges.data.cls[1], edges.data.sep[1]];
  const single: Piece[] = [
    { ids: [cls], type: 0 },
    { text: 0, type: 0 },
    { ids: [sep], type: 0 },
  ];
  const pair: Piece[] =
    edges.data.type === 'BertProcessing'
      ? [...single, { text: 1, type: 1 }, { ids: [sep], type: 1 }]
      : [...single, { ids: [sep], type: 0 }, { text: 1, type: 0 }, { ids: [sep], type: 0 }];
  return { single, pair };
}
