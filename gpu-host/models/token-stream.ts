/** Turns a stream of tokens into text. The joined pieces equal the decoding of all tokens at once. */
export interface TokenStream {
  /** The text that these tokens complete; never half a character. @throws RangeError for an id outside the vocabulary */
  push(tokens: Uint32Array | readonly number[]): string;
  /** Returns the remaining text, with U+FFFD for bytes that did not complete a character, and resets the stream. */
  finish(): string;
}

/**
 * Creates a stream that decodes tokens from their bytes. The stream decodes each token once, in constant time.
 *
 * @param bytesOf bytes of a token id, empty for a token that is left out
 * @param stripsLeadingSpace true to drop a space at the beginning of the stream's text
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
