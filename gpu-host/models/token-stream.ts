/** Turns a stream of tokens into text: what comes out, joined, equals the decoding of all tokens at once. */
export interface TokenStream {
  /** The text that these tokens complete; never half a character. @throws RangeError for an id outside the vocabulary */
  push(tokens: Uint32Array | readonly number[]): string;
  /** What is left, with U+FFFD for bytes that never became a character. The stream then starts anew. */
  finish(): string;
}

/**
 * A stream over the bytes of each token. Constant time per token: nothing is decoded twice.
 *
 * @param bytesOf bytes of a token id, empty for one that is left out
 * @param stripsLeadingSpace whether the first space of the stream, if its text begins with one, is dropped
 */
export function createTokenStream(bytesOf: (id: number) => Uint8Array, stripsLeadingSpace: boolean): TokenStream {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let atStart = stripsLeadingSpace;
  const strip = (text: string) => {
    if (!atStart || text === '') return text;
    atStart = false;
    return text.startsWith(' ') ? text.slice(1) : text;
  };
  return {
    push(tokens) {
      let text = '';
      for (const id of tokens) text += decoder.decode(bytesOf(id), { stream: true });
      return strip(text);
    },
    finish() {
      const text = strip(decoder.decode());
      atStart = stripsLeadingSpace;
      return text;
    },
  };
}
