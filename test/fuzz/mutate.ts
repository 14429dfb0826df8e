import { ProtocolFault } from '#gpu-host/protocol/errors.ts';
import { PageLists } from '#gpu-host/protocol/fields.ts';
import { WordReader } from '#gpu-host/protocol/frames.ts';
import { decodeCalls, OPERATIONS } from '#gpu-host/protocol/operations.ts';
import { FRAME, FRAME_HEADER_WORDS, HELLO_VERSION, MAX_FRAME_WORDS } from '#gpu-host/protocol/wire.ts';
import type { Random } from '../harness/random.ts';
import { hostileWord } from './hostile.ts';

/** Words of a frame before the fields of its first call: its header, and the entry's length, operation, inferlet, queue and id. */
const HEAD_WORDS = 7;

/**
 * Ways to spoil the bytes of a good frame. Word 0 of a frame is its length, and word 1 its version and kind. Word 2 is the length of its first entry,
 * and word 3 the operation of this entry.
 */
const MUTATIONS: Readonly<Record<string, (frame: Uint8Array, random: Random) => Uint8Array>> = {
  'a flipped bit': (frame, random) => {
    const at = random.below(frame.length);
    frame[at] = (frame[at] as number) ^ (1 << random.below(8));
    return frame;
  },
  'flipped bits': (frame, random) => {
    for (let flips = 2 + random.below(12); flips > 0; flips--) {
      const at = random.below(frame.length);
      frame[at] = (frame[at] as number) ^ (1 << random.below(8));
    }
    return frame;
  },
  'a foreign word': (frame, random) => setWord(frame, random.below(frame.length >> 2), hostileWord(random)),
  'a lie about its length': (frame, random) => setWord(frame, 0, hostileWord(random)),
  'a length off by a few': (frame, random) => setWord(frame, 0, (frame.length >> 2) + random.below(9) - 4),
  "a lie about an entry's length": (frame, random) => setWord(frame, 2, random.below(64)),
  'a lie about a count': (frame, random) => {
    const at = HEAD_WORDS + random.below(Math.max(1, (frame.length >> 2) - HEAD_WORDS));
    return setWord(
      frame,
      Math.min(at, (frame.length >> 2) - 1),
      random.pick([0xffff_ffff, 0x4000_0000, 1_048_577, 77]),
    );
  },
  truncated: (frame, random) => frame.subarray(0, random.below(frame.length)),
  'cut and closed': (frame, random) => {
    const words = 2 + random.below(Math.max(1, (frame.length >> 2) - 2));
    return setWord(frame.slice(0, words * 4), 0, words);
  },
  'too much': (frame, random) =>
    setWord(Buffer.concat([frame, Buffer.alloc(4 * (1 + random.below(8)), 1)]), 0, (frame.length >> 2) + 1),
  oversized: (frame, random) => setWord(frame, 0, MAX_FRAME_WORDS + 1 + random.below(1000)),
  'another version': (frame, random) => {
    const version = random.pick([0, 1, HELLO_VERSION + 1, 0xffff]);
    return setWord(frame, 1, ((version << 16) | FRAME.calls) >>> 0);
  },
  'another kind': (frame, random) => {
    const kind = random.pick([0, ...Object.values(FRAME), 9, 0xffff]);
    return setWord(frame, 1, ((HELLO_VERSION << 16) | kind) >>> 0);
  },
  'random bytes': (_, random) => Uint8Array.from({ length: 1 + random.below(200) }, () => random.below(256)),
  'random words in a good frame': (_, random) => {
    const words = Uint32Array.from({ length: 3 + random.below(40) }, () => hostileWord(random));
    words[0] = words.length;
    words[1] = (HELLO_VERSION << 16) | FRAME.calls;
    words[2] = words.length - 2;
    words[3] = 1 + random.below(40);
    return new Uint8Array(words.buffer);
  },
  'two in one': (frame, random) => {
    const at = random.below(frame.length);
    return Buffer.concat([frame.subarray(0, at), frame.subarray(random.below(frame.length))]);
  },
};

export interface Mutation {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** A copy of a frame with one of `MUTATIONS` applied. */
export function mutate(frame: Uint8Array, random: Random): Mutation {
  const [name, spoil] = random.pick(Object.entries(MUTATIONS));
  return { name, bytes: spoil(Uint8Array.from(frame), random) };
}

const ATTEMPTS = 4;

/** Copies a frame and flips bits in the fields of its first call, so that the copy stays readable. Returns the frame itself if all attempts fail. */
export function mutateReadably(frame: Uint8Array, random: Random): Mutation {
  const [, , entryWords = 0, operation] = new Uint32Array(frame.buffer, frame.byteOffset, 4);
  const fieldBytes = (entryWords - (HEAD_WORDS - FRAME_HEADER_WORDS)) * 4;
  const isOpening = operation === OPERATIONS['open-inferlet'].code || operation === OPERATIONS['create-queue'].code;
  for (let attempt = 0; fieldBytes > 0 && !isOpening && attempt < ATTEMPTS; attempt++) {
    const bytes = Uint8Array.from(frame);
    for (let flips = 1 + random.below(4); flips > 0; flips--) {
      const at = HEAD_WORDS * 4 + random.below(fieldBytes);
      bytes[at] = (bytes[at] as number) ^ (1 << random.below(8));
    }
    if (isReadable(bytes)) return { name: 'readable flipped bits', bytes };
  }
  return { name: 'hostile values', bytes: frame };
}

function isReadable(frame: Uint8Array): boolean {
  const words = new Uint32Array(frame.buffer, 0, frame.length >> 2);
  try {
    decodeCalls(new WordReader(words, FRAME_HEADER_WORDS), words.length, new PageLists(), () => {});
    return true;
  } catch (error) {
    if (error instanceof ProtocolFault) return false;
    throw error;
  }
}

function setWord(bytes: Uint8Array, index: number, value: number): Uint8Array {
  new DataView(bytes.buffer, bytes.byteOffset).setUint32(index * 4, value >>> 0, true);
  return bytes;
}
