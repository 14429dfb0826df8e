import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';

/** A model's tokens for workers, in memory that all workers share. */
export interface Vocabulary {
  readonly id: number;
  /** Number of the model's tokens; its tokenizer may know fewer or more. */
  readonly size: number;
  /** Concatenated bytes of all tokens. Special, padding and unknown tokens have no bytes, so no text contains them. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** Start of each token's bytes, and the end of the last token's. */
  readonly offsets: Uint32Array<SharedArrayBuffer>;
  /** Tokens that end a text. */
  readonly eos: readonly number[];
}

/** Tokens packed in one turn of the event loop: a longer turn would delay other inferlets. */
const TOKENS_PER_TURN = 2000;

/** Vocabularies by tokenizer and size. */
const vocabularies = new WeakMap<Tokenizer, Map<number, Promise<Vocabulary>>>();
let lastId = 0;

/** The vocabulary of a model of `size` tokens. It is made once; after a failure, the next call makes it again. */
export function vocabularyOf(tokenizer: Tokenizer, size: number): Promise<Vocabulary> {
  const bySize = vocabularies.get(tokenizer) ?? new Map<number, Promise<Vocabulary>>();
  vocabularies.set(tokenizer, bySize);
  let vocabulary = bySize.get(size);
  if (!vocabulary) {
    vocabulary = pack(tokenizer, size);
    bySize.set(size, vocabulary);
    vocabulary.catch(() => bySize.delete(size));
  }
  return vocabulary;
}

async function pack(tokenizer: Tokenizer, size: number): Promise<Vocabulary> {
  const isSpecial = specialTest(tokenizer);
  const pieces: Uint8Array[] = [];
  const offsets = new Uint32Array(new SharedArrayBuffer(4 * (size + 1)));
  for (let id = 0; id < size; id += 1) {
    if (id % TOKENS_PER_TURN === TOKENS_PER_TURN - 1) await nextTurn();
    const bytes = id < tokenizer.vocabularySize ? tokenizer.tokenBytes(id) : NOTHING;
    const spelling = bytes.length > 0 && !isSpecial(id, bytes) ? bytes : NOTHING;
    pieces.push(spelling);
    offsets[id + 1] = (offsets[id] ?? 0) + spelling.length;
  }
  const bytes = new Uint8Array(new SharedArrayBuffer(offsets[size] ?? 0));
  for (const [id, piece] of pieces.entries()) bytes.set(piece, offsets[id]);
  lastId += 1;
  return { id: lastId, size, bytes, offsets, eos: tokenizer.special.eos.filter((id) => id < size) };
}

/** The bytes of a token that grammars never allow. */
const NOTHING = new Uint8Array(0);

/** Returns a test for special tokens: the tokens that a decoded text leaves out. */
function specialTest(tokenizer: Tokenizer): (id: number, bytes: Uint8Array) => boolean {
  const sharedStream = tokenizer.stream({ continuation: true });
  return (id, bytes) => {
    // Tokens of whole characters can share a stream, because it answers each of them at once. It would hold back the bytes of half a character.
    if (isUtf8(bytes)) return sharedStream.push([id]) === '';
    const stream = tokenizer.stream({ continuation: true });
    return stream.push([id]) + stream.finish() === '';
  };
}

/** The model whose tokens a grammar matches. */
export interface GrammarModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Number of the model's tokens; masks have a bit for each. */
  readonly vocabularySize: number;
}
