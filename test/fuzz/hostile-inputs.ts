import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { Operation } from '#gpu-host/protocol/operations.ts';
import { MAX_ENCODED_TEXTS } from '#gpu-host/protocol/wire.ts';
import type { Random } from '../harness/random.ts';
import { list, word } from './hostile.ts';

/** Makes the two calls of one image: `embed-image`, then the pixels or an error. Sometimes they come in reverse order, or one is missing. */
export function hostileImage(random: Random, embed: () => number): Operation[] {
  const embeds = list(random, 4, embed);
  const calls: Operation[] = [
    { op: 'embed-image', positions: Uint32Array.from(embeds, (_, i) => word(random, i)), embeds },
    random.once(3)
      ? { op: 'image-failed', why: handlerError('invalid-argument', 'no image') }
      : { op: 'image-pixels', pixels: Uint8Array.from({ length: random.below(100) }, () => random.below(256)) },
  ];
  if (random.once(6)) calls.reverse();
  return random.once(12) ? calls.slice(1) : calls;
}

/** Makes an `encode` call, mostly with texts that the encoder accepts. One call in 20 has the maximum number of texts, or one more. */
export function hostileTexts(random: Random, vocabularySize: number): Operation {
  const count = random.once(20) ? MAX_ENCODED_TEXTS + random.below(2) : random.below(5);
  const lengths = Uint32Array.from({ length: count }, () => 1 + random.below(12));
  const tokens = Uint32Array.from({ length: lengths.reduce((sum, length) => sum + length, 0) }, () =>
    random.below(vocabularySize),
  );
  const maybeHostile = (values: Uint32Array) =>
    random.once(12) ? list(random, values.length, () => word(random, random.below(13))) : values;
  return {
    op: 'encode',
    encoder: word(random, random.below(2)),
    tokens: maybeHostile(tokens),
    lengths: maybeHostile(lengths),
    firsts: maybeHostile(lengths.map((length) => random.below(length + 1))),
  };
}
