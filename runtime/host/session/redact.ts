import { randomBytes, randomInt } from 'node:crypto';

/**
 * Removes secrets from a text: each value becomes `[NAME]`. With `isCut`, the text was cut at its end, so the beginning of a value there is
 * removed, too.
 */
export type Redact = (text: string, isCut?: boolean) => string;

/** The {@link Redact} of an inferlet without secrets. */
export const redactNothing: Redact = (text) => text;

/** Shorter values are not removed: any text has them by chance. */
const MIN_LENGTH = 4;
/** A line of a multi-line value (such as a private key) is also removed on its own if it has at least this length. */
const MIN_LINE_LENGTH = 8;
/** Maximum lines of a value that are removed on their own: the first ones. */
const MAX_LINES = 64;
/** Values of at least this length are found in their encodings, too. */
const MIN_ENCODED_LENGTH = 6;

/**
 * Maximum length of a piece. A form is a value or one of its lines, verbatim or encoded. A form that is longer than a piece is found piece by
 * piece, so that the time for a text does not depend on the lengths of values.
 */
const PIECE = 64;

/** A form without white space, or a part of it. */
interface Piece {
  readonly name: string;
  readonly text: string;
  /** True for a piece that follows another one of its form. */
  readonly continues: boolean;
  /** True for the last piece of a form. */
  readonly ends: boolean;
}

/**
 * Removes the secrets of inferlets that talk to each other: each inferlet's secrets from the texts of all. White space between the characters
 * of a value does not hide it: `console.log` puts spaces between its arguments, and a formatter may break lines. Values are found verbatim and as
 * JSON strings. Whole values are also found in JSON within JSON, in URLs and HTML forms, and in base64 at any offset of the encoded data.
 *
 * The time for a text is linear in its length, whatever the values are (Rabin and Karp, 1987): guests choose both.
 */
export class Redactor {
  readonly #versions = new Set<string>();
  /** Secrets whose pieces are not made yet: an inferlet that writes no text needs none. */
  #newSecrets: (readonly [name: string, value: string])[] = [];
  /** Pieces by their length. */
  readonly #pieces = new Map<number, PieceTable>();
  /** The pieces in order of their texts; null until a text was cut. */
  #sorted: readonly Piece[] | null = null;

  /** Adds the secrets of a function version, once. */
  add(version: string, secrets: ReadonlyMap<string, string>): void {
    if (this.#versions.has(version)) return;
    this.#versions.add(version);
    this.#newSecrets.push(...secrets);
  }

  readonly redact: Redact = (text, isCut = false) => {
    this.#makePieces();
    if (this.#pieces.size === 0) return text;
    const { squeezed, places } = squeeze(text);
    const found = new FoundPieces(squeezed.length);
    const words = new Int32Array(squeezed.length);
    for (let at = 0; at < words.length; at++) words[at] = wordAt(squeezed, at);
    // Find long pieces first: a place where a long piece begins need not be compared with shorter pieces.
    const byLength = [...this.#pieces].sort(([a], [b]) => b - a);
    for (const [length, pieces] of byLength) findAll(squeezed, words, length, pieces, found);
    if (isCut) this.#findBeginning(squeezed, found);
    return found.hasAny ? replaceFound(text, places, found) : text;
  };

  #makePieces(): void {
    if (this.#newSecrets.length === 0) return;
    for (const [name, value] of this.#newSecrets) for (const form of formsOf(value)) this.#addForm(name, form);
    this.#newSecrets = [];
    this.#sorted = null;
  }

  #addForm(name: string, form: string): void {
    this.#addPiece({ name, text: form.slice(0, PIECE), continues: false, ends: form.length <= PIECE });
    for (let at = PIECE; at < form.length; at += PIECE) {
      // The last piece overlaps the one before it, so that it has the full length, too.
      const from = Math.min(at, form.length - PIECE);
      this.#addPiece({ name, text: form.slice(from, from + PIECE), continues: true, ends: at + PIECE >= form.length });
    }
  }

  #addPiece(piece: Piece): void {
    const { length } = piece.text;
    const pieces = this.#pieces.get(length) ?? new PieceTable();
    this.#pieces.set(length, pieces);
    pieces.add(piece);
  }

  /** Finds the longest beginning of a piece with which the text ends. */
  #findBeginning(text: string, found: FoundPieces): void {
    this.#sorted ??= [...this.#pieces.values()]
      .flatMap((pieces) => [...pieces.all()])
      .sort((a, b) => (a.text < b.text ? -1 : 1));
    for (let from = Math.max(0, text.length - PIECE + 1); from + MIN_LENGTH <= text.length; from++) {
      const piece = firstWith(this.#sorted, text.slice(from));
      if (!piece) continue;
      found.add(piece, from, text.length);
      return;
    }
    // Fewer than `MIN_LENGTH` characters of the next piece may follow a found piece at the end of the text: remove them with that piece.
    for (let from = Math.max(0, text.length - PIECE - MIN_LENGTH); from < text.length; from++) {
      const [piece, to] = [found.pieceAt(from), found.endAt(from)];
      if (piece && !piece.ends && to > text.length - MIN_LENGTH && to < text.length) {
        found.add(piece, from, text.length);
      }
    }
  }
}

/** Pieces of one length by their hash. A filter of bits spares most places of a text the search in the map. */
class PieceTable {
  readonly #byHash = new Map<number, Piece[]>();
  /**
   * Has a bit set for each hash. Its number of words is a power of two and at least the number of hashes, so that few other hashes find their bit
   * set.
   */
  #filter = new Int32Array(1);

  add(piece: Piece): void {
    const hash = hashOf(piece.text);
    const sameHash = this.#byHash.get(hash);
    if (sameHash) {
      if (!sameHash.some(({ text }) => text === piece.text)) sameHash.push(piece);
      return;
    }
    this.#byHash.set(hash, [piece]);
    if (this.#byHash.size > this.#filter.length) {
      this.#filter = new Int32Array(2 * this.#filter.length);
      for (const each of this.#byHash.keys()) this.#setBit(each);
    } else this.#setBit(hash);
  }

  *all(): Generator<Piece> {
    for (const pieces of this.#byHash.values()) yield* pieces;
  }

  /** False for most hashes that no piece has. */
  mayHave(hash: number): boolean {
    const word = this.#filter[(hash >>> 5) & (this.#filter.length - 1)] as number;
    return ((word >>> (hash & 31)) & 1) === 1;
  }

  get(hash: number): readonly Piece[] | undefined {
    return this.#byHash.get(hash);
  }

  #setBit(hash: number): void {
    const at = (hash >>> 5) & (this.#filter.length - 1);
    this.#filter[at] = (this.#filter[at] as number) | (1 << (hash & 31));
  }
}

/** The first of the sorted pieces whose text begins with `start`. */
function firstWith(sorted: readonly Piece[], start: string): Piece | undefined {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as Piece).text < start) low = middle + 1;
    else high = middle;
  }
  const piece = sorted[low];
  return piece?.text.startsWith(start) ? piece : undefined;
}

/** Base of the hash: odd, and unknown to guests. */
const BASE = randomInt(1 << 20, 1 << 30) * 2 + 1;

/** A random word for each character. With character codes, texts whose characters differ by a power of two would have equal hashes. */
const WORDS = new Int32Array(new Uint8Array(randomBytes(4 << 16)).buffer);

const wordAt = (text: string, at: number): number => WORDS[text.charCodeAt(at)] as number;

function hashOf(text: string): number {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, BASE) + wordAt(text, i)) | 0;
  return hash;
}

/**
 * Adds to `found` every place of the text where one of `pieces` begins, unless a longer piece begins there.
 * @param words the random words of the text's characters
 * @param length the length of each of `pieces`
 */
function findAll(text: string, words: Int32Array, length: number, pieces: PieceTable, found: FoundPieces): void {
  if (text.length < length) return;
  // Factor of a range's first character in its hash.
  let firstFactor = 1;
  for (let i = 1; i < length; i++) firstFactor = Math.imul(firstFactor, BASE);
  let hash = hashOf(text.slice(0, length));
  for (let from = 0; ; from++) {
    if (pieces.mayHave(hash) && found.endAt(from) < from + length) {
      const piece = pieces.get(hash)?.find((each) => text.startsWith(each.text, from));
      if (piece) found.add(piece, from, from + length);
    }
    if (from + length >= text.length) return;
    const hashWithoutFirst = (hash - Math.imul(words[from] as number, firstFactor)) | 0;
    hash = (Math.imul(hashWithoutFirst, BASE) + (words[from + length] as number)) | 0;
  }
}

/** The forms of a value to find, without white space. */
function formsOf(value: string): string[] {
  const lines = value.split(/\r?\n/).filter((line) => line.trim().length >= MIN_LINE_LENGTH);
  const encoded = [...new Set([value, value.trim()])].filter((whole) => whole.length >= MIN_ENCODED_LENGTH);
  const forms = [
    ...[value, ...lines.slice(0, MAX_LINES)].flatMap((form) => [form, inJson(form)]),
    ...encoded.flatMap((whole) => [inJson(inJson(whole)), ...inAddresses(whole), ...inBase64(whole)]),
  ];
  const texts = new Set(forms.map((form) => form.replace(/\s+/g, '')));
  return [...texts].filter((text) => text.length >= MIN_LENGTH);
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** The text as `encodeURIComponent` writes it, and as an HTML form sends it. */
const inAddresses = (text: string): string[] => [
  encodeURIComponent(text),
  new URLSearchParams([['', text]]).toString().slice(1),
];

/**
 * The base64 characters that depend on the value alone, for each of the three alignments and both alphabets. A base64 character has 6 bits,
 * so the characters at the ends of a value may hold bits of its neighbours; those are left out.
 */
function inBase64(text: string): string[] {
  const bytes = Buffer.from(text, 'utf8');
  return [0, 1, 2].flatMap((bytesBefore) => {
    const encoded = Buffer.concat([Buffer.alloc(bytesBefore), bytes]).toString('base64');
    const ownCharacters = encoded.slice(
      Math.ceil((bytesBefore * 8) / 6),
      Math.floor(((bytesBefore + bytes.length) * 8) / 6),
    );
    return [ownCharacters, ownCharacters.replaceAll('+', '-').replaceAll('/', '_')];
  });
}

/** Removes white space from a text; `places` has the original index of each remaining character. */
function squeeze(text: string): { squeezed: string; places: Uint32Array } {
  const places = new Uint32Array(text.length);
  let squeezed = '';
  for (const match of text.matchAll(/\S+/g)) {
    for (let i = 0; i < match[0].length; i++) places[squeezed.length + i] = match.index + i;
    squeezed += match[0];
  }
  return { squeezed, places };
}

/** The longest piece that begins at each place of a text. */
class FoundPieces {
  readonly #ends: Int32Array;
  readonly #pieces: Piece[] = [];
  hasAny = false;

  /** @param length of the text */
  constructor(length: number) {
    this.#ends = new Int32Array(length);
  }

  get length(): number {
    return this.#ends.length;
  }

  /** @param to exclusive */
  add(piece: Piece, from: number, to: number): void {
    if (to <= (this.#ends[from] as number)) return;
    this.hasAny = true;
    this.#ends[from] = to;
    this.#pieces[from] = piece;
  }

  /** The piece that begins at `from`; undefined for none. */
  pieceAt(from: number): Piece | undefined {
    return this.#pieces[from];
  }

  /** The end of the piece that begins at `from`, exclusive; 0 for none. */
  endAt(from: number): number {
    return this.#ends[from] as number;
  }
}

/** Replaces the found ranges; overlapping ranges, and the pieces of one form, become one, named after the first. */
function replaceFound(text: string, places: Uint32Array, found: FoundPieces): string {
  const parts: string[] = [];
  // `textFrom` counts characters of `text`, `coveredTo` those of the squeezed text.
  let textFrom = 0;
  let coveredTo = 0;
  for (let from = 0; from < found.length; from++) {
    const piece = found.pieceAt(from);
    if (!piece) continue;
    const isNew = from > coveredTo || (from === coveredTo && !piece.continues) || parts.length === 0;
    if (isNew) parts.push(text.slice(textFrom, places[from]), `[${piece.name}]`);
    coveredTo = Math.max(coveredTo, found.endAt(from));
    textFrom = (places[coveredTo - 1] ?? 0) + 1;
  }
  parts.push(text.slice(textFrom));
  return parts.join('');
}
