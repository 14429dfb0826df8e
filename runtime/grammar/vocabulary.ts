import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';

/** A model's tokens as a worker takes them, in memory that all workers share. */
export interface Vocabulary {
  readonly id: number;
  readonly size: number;
  /** Bytes of all tokens, one after the other. Special and padded tokens have none: a grammar never allows them. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** Where each token's bytes begin, and where the last one's end. */
  readonly offsets: Uint32Array<SharedArrayBuffer>;
  /** Tokens that end a text. */
  readonly eos: readonly number[];
}

/** Tokens that are packed in one turn of the event loop: other inferlets wait meanwhile. */
const TOKENS_PER_TURN = 2000;

const packed = new WeakMap<Tokenizer, Promise<Vocabulary>>();
let lastId = 0;

/** The vocabulary of a tokenizer; made once. */
export function vocabularyOf(tokenizer: Tokenizer): Promise<Vocabulary> {
  let vocabulary = packed.get(tokenizer);
  if (!vocabulary) {
    vocabulary = pack(tokenizer);
    packed.set(tokenizer, vocabulary);
  }
  return vocabulary;
}

async function pack(tokenizer: Tokenizer): Promise<Vocabulary> {
  const size = tokenizer.vocabularySize;
  const isSpecial = specialTest(tokenizer);
  const pieces: Uint8Array[] = [];
  const offsets = new Uint32Array(new SharedArrayBuffer(4 * (size + 1)));
  for (let id = 0; id < size; id += 1) {
    if (id % TOKENS_PER_TURN === TOKENS_PER_TURN - 1) await nextTurn();
    const bytes = tokenizer.tokenBytes(id);
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
