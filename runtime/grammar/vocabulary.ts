import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';

/** A model's tokens as a worker takes them, in memory that all workers share. */
export interface Vocabulary {
  readonly id: number;
  /** Tokens of the model: not of its tokenizer, which may know fewer or more. */
  readonly size: number;
  /** Bytes of all tokens, one after the other. Special and padded tokens, and such as the tokenizer lacks, have none: they are never allowed. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** Where each token's bytes begin, and where the last one's end. */
  readonly offsets: Uint32Array<SharedArrayBuffer>;
  /** Tokens that end a text. */
  readonly eos: readonly number[];
}

/** Tokens that are packed in one turn of the event loop: other inferlets wait meanwhile. */
const TOKENS_PER_TURN = 2000;

/** By tokenizer and size. */
const packed = new WeakMap<Tokenizer, Map<number, Promise<Vocabulary>>>();
let lastId = 0;

/** The vocabulary of a model of `size` tokens; made once. */
export function vocabularyOf(tokenizer: Tokenizer, size: number): Promise<Vocabulary> {
  const sizes = packed.get(tokenizer) ?? new Map<number, Promise<Vocabulary>>();
  packed.set(tokenizer, sizes);
  let vocabulary = sizes.get(size);
  if (!vocabulary) {
    vocabulary = pack(tokenizer, size);
    sizes.set(size, vocabulary);
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
    const kept = bytes.length > 0 && !isSpecial(id, bytes) ? bytes : NOTHING;
    pieces.push(kept);
    offsets[id + 1] = (offsets[id] ?? 0) + kept.length;
  }
  const bytes = new Uint8Array(new SharedArrayBuffer(offsets[size] ?? 0));
  for (const [id, piece] of pieces.entries()) bytes.set(piece, offsets[id]);
  lastId += 1;
  return { id: lastId, size, bytes, offsets, eos: tokenizer.special.eos.filter((id) => id < size) };
}

const NOTHING = new Uint8Array(0);

/** Special tokens are those that a decoded text leaves out. */
function specialTest(tokenizer: Tokenizer): (id: number, bytes: Uint8Array) => boolean {
  const whole = tokenizer.stream({ continuation: true });
  return (id, bytes) => {
    // A stream that is between two characters says everything at once; half a character would wait for its other half.
    if (isUtf8(bytes)) return whole.push([id]) === '';
    const stream = tokenizer.stream({ continuation: true });
    return stream.push([id]) + stream.finish() === '';
  };
}
