import { ModelError } from '../errors.ts';

/**
 * Role of a piece. Text is cut into `normal` and `byte` pieces. `control` and `unknown` pieces are special tokens. An `added` piece is found in
 * a text before the text is cut. An `unused` piece only takes up an id.
 */
export type PieceKind = 'normal' | 'unknown' | 'control' | 'added' | 'unused' | 'byte';

/** One entry of a SentencePiece BPE vocabulary, a token. The tokenizer joins neighbouring pieces into the union with the highest score first. */
export interface Piece {
  readonly text: string;
  readonly score: number;
  readonly kind: PieceKind;
}

const UNKNOWN = 0;
const BOS = 1;
const EOS = 2;
const FIRST_BYTE = 3;
const FIRST_PIECE = FIRST_BYTE + 256;
const MAX_PIECE_BYTES = 1024;
/** Maximum sum of length² over all pieces: it bounds the time to find merges. Gemma's 256,000 pieces have a sum of 10 million. */
const MAX_MERGE_WORK = 1 << 26;
/** Maximum number of merges, 786,432. Gemma's pieces give 580,604 merges. */
const MAX_MERGES = 3 << 18;
/** Maximum characters of all merges: it bounds the memory that the tokenizer takes. Gemma's merges have less than 10 million. */
const MAX_MERGE_CHARACTERS = 1 << 24;

/**
 * Reads llama2.c's tokenizer.bin: the length of the longest piece, then score, length and bytes of each piece.
 *
 * Old and new files spell the special entries in different ways: ids 1 and 2 with newlines around or without, bytes raw or as `<0x0A>`. The
 * parser therefore recognises these entries by id and gives them SentencePiece's own spelling. In all other entries, spaces become `▁` again.
 *
 * @throws ModelError `malformed-tokenizer`
 */
export function parseTokenizerBin(file: Buffer, vocabularySize: number): Piece[] {
  const fail = (what: string): never => {
    throw new ModelError('malformed-tokenizer', `tokenizer.bin: ${what}`);
  };
  if (vocabularySize < FIRST_PIECE) fail(`a vocabulary of ${vocabularySize} has no room for the byte tokens`);
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const pieces: Piece[] = [];
  let position = 4;
  for (let id = 0; id < vocabularySize; id++) {
    if (position + 8 > file.length) fail(`it ends at token ${id} of ${vocabularySize}`);
    const score = file.readFloatLE(position);
    const length = file.readInt32LE(position + 4);
    position += 8;
    if (length < 0 || length > MAX_PIECE_BYTES || position + length > file.length)
      fail(`token ${id} claims ${length} bytes`);
    const text = spelling(id, decoder.decode(file.subarray(position, position + length)));
    pieces.push({ text, score, kind: kindOf(id) });
    position += length;
  }
  if (position !== file.length) fail(`${file.length - position} bytes follow token ${vocabularySize - 1}`);
  return pieces;
}

function spelling(id: number, text: string): string {
  if (id === UNKNOWN) return '<unk>';
  if (id === BOS) return '<s>';
  if (id === EOS) return '</s>';
  if (id < FIRST_PIECE) {
    return `<0x${(id - FIRST_BYTE).toString(16).toUpperCase().padStart(2, '0')}>`;
  }
  return text.replaceAll(' ', '▁');
}

function kindOf(id: number): PieceKind {
  if (id === UNKNOWN) return 'unknown';
  if (id <= EOS) return 'control';
  return id < FIRST_PIECE ? 'byte' : 'normal';
}

/** An entry of a tokenizer.json's `added_tokens`. */
export function addedToken(id: number, content: string, special: boolean): Record<string, unknown> {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special };
}

/**
 * Maps the text of each piece to its id.
 *
 * @throws ModelError `malformed-tokenizer` when two pieces have the same text
 */
export function vocabularyOf(pieces: readonly Piece[]): Map<string, number> {
  const vocabulary = new Map<string, number>();
  for (const [id, { text }] of pieces.entries()) {
    if (vocabulary.has(text))
      throw new ModelError('malformed-tokenizer', `two tokens are spelled ${JSON.stringify(text)}`);
    vocabulary.set(text, id);
  }
  return vocabulary;
}

/**
 * A Hugging Face `tokenizer.json` (BPE with byte fallback) that tokenizes as the SentencePiece model does.
 *
 * SentencePiece joins the pair of pieces whose union has the highest score. Hugging Face instead reads a list of pairs, the merges, in the
 * order in which they are joined. Every way to cut a piece into two other pieces therefore becomes a merge. Merges are ordered by the whole
 * piece's score, highest first, then by its id, then by the ids of its two parts. Hugging Face's own converter does the same
 * (`SentencePieceExtractor` in transformers' convert_slow_tokenizer.py).
 *
 * @throws ModelError `malformed-tokenizer` when two pieces have the same text, or the pieces are too long or give too many merges
 */
export function sentencePieceTokenizer(
  pieces: readonly Piece[],
  { prependsSpace = true }: { prependsSpace?: boolean } = {},
): Record<string, unknown> {
  const vocabulary = vocabularyOf(pieces);
  const added = pieces.flatMap(({ text, kind }, id) => {
    if (kind === 'added') return [addedToken(id, text.replaceAll('▁', ' '), false)];
    return kind === 'unknown' || kind === 'control' ? [addedToken(id, text, true)] : [];
  });
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer: {
      type: 'Sequence',
      normalizers: [
        ...(prependsSpace ? [{ type: 'Prepend', prepend: '▁' }] : []),
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    pre_tokenizer: null,
    // The runtime, not the tokenizer, begins a context with the BOS token.
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(prependsSpace ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: pieces.find(({ kind }) => kind === 'unknown')?.text ?? null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary),
      merges: mergesOf(pieces, vocabulary),
    },
  };
}

function mergesOf(pieces: readonly Piece[], vocabulary: ReadonlyMap<string, number>): [string, string][] {
  const work = pieces.reduce((sum, { text }) => sum + text.length ** 2, 0);
  if (work > MAX_MERGE_WORK)
    throw new ModelError('malformed-tokenizer', `the vocabulary has too many long tokens for ${MAX_MERGE_WORK} steps`);
  // For each merge, the ids of the whole piece and of its two parts, in three lists: one object for each merge would take 60 MB more.
  const wholes: number[] = [];
  const lefts: number[] = [];
  const rights: number[] = [];
  let characters = 0;
  for (const [pieceId, { text, kind }] of pieces.entries()) {
    if (kind !== 'normal') continue;
    for (let cut = 1; cut < text.length; cut++) {
      // Do not cut a character that has two UTF-16 units.
      if ((text.charCodeAt(cut) & 0xfc00) === 0xdc00) continue;
      const leftId = vocabulary.get(text.slice(0, cut));
      const rightId = leftId === undefined ? undefined : vocabulary.get(text.slice(cut));
      if (leftId === undefined || rightId === undefined) continue;
      characters += text.length;
      if (wholes.length === MAX_MERGES || characters > MAX_MERGE_CHARACTERS) {
        throw new ModelError(
          'malformed-tokenizer',
          `the vocabulary gives more than ${MAX_MERGES} merges, or ${MAX_MERGE_CHARACTERS} characters of merges`,
        );
      }
      wholes.push(pieceId);
      lefts.push(leftId);
      rights.push(rightId);
    }
  }
  const at = (list: readonly number[], i: number) => list[i] as number;
  const textOf = (id: number) => (pieces[id] as Piece).text;
  const scoreOf = (merge: number) => (pieces[at(wholes, merge)] as Piece).score;
  const order = Uint32Array.from(wholes.keys()).sort(
    (a, b) =>
      scoreOf(b) - scoreOf(a) ||
      at(wholes, a) - at(wholes, b) ||
      at(lefts, a) - at(lefts, b) ||
      at(rights, a) - at(rights, b),
  );
  return Array.from(order, (merge) => [textOf(at(lefts, merge)), textOf(at(rights, merge))]);
}
