import { createTokenStream } from '#gpu-host/models/token-stream.ts';
import type { SentVocabulary } from '../fleet/messages.ts';
import type { Decoding } from '../host/text/detokenize.ts';

const NOTHING = new Uint8Array(0);

/**
 * Reads a model's token tables. `body` has the length of each token in bytes (u16), then the bytes of all tokens. The
 * tables share this buffer.
 */
export function decodingOf(
  { special, specialIds, stripsLeadingSpace, size }: SentVocabulary,
  body: Uint8Array,
): Decoding {
  const hidden = new Set(specialIds);
  const starts = new Uint32Array(size + 1);
  const lengths = new DataView(body.buffer, body.byteOffset, size * 2);
  let end = size * 2;
  for (let id = 0; id < size; id++) {
    starts[id] = end;
    end += lengths.getUint16(id * 2, true);
  }
  starts[size] = end;
  const tokenBytes = (id: number): Uint8Array => {
    if (!Number.isInteger(id) || id < 0 || id >= size) {
      throw new RangeError(`token id ${id} is outside the vocabulary of ${size}`);
    }
    return body.subarray(starts[id], starts[id + 1]);
  };
  const visibleBytes = (id: number): Uint8Array => (hidden.has(id) ? NOTHING : tokenBytes(id));
  const stream: Decoding['stream'] = ({ special: showsSpecial = false, continuation = false } = {}) =>
    createTokenStream(showsSpecial ? tokenBytes : visibleBytes, stripsLeadingSpace && !continuation);
  return {
    decode(tokens, options) {
      const tokenStream = stream(options);
      return tokenStream.push(tokens) + tokenStream.finish();
    },
    stream,
    special,
    vocabularySize: size,
    tokenBytes,
  };
}
