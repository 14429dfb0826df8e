import { fault } from '../../memory/fault.ts';

/** @throws CallFault `invalid-argument` naming the first token outside the vocabulary. */
export function checkTokens(tokens: Uint32Array, vocabularySize: number): void {
  for (let i = 0; i < tokens.length; i++) {
    if ((tokens[i] as number) >= vocabularySize) {
      throw fault(
        'invalid-argument',
        `token ${tokens[i]} (number ${i}) is outside the vocabulary of ${vocabularySize}`,
      );
    }
  }
}

/** @throws CallFault `invalid-argument` */
export function checkTopK(topK: number, maxTopK: number): void {
  if (topK >= 1 && topK <= maxTopK) return;
  throw fault('invalid-argument', `top-k ${topK}; 1 to ${maxTopK} is expected`);
}

/**
 * Checks a mask of allowed tokens: it has one row of words per output row, and each row allows at least one token.
 * @throws CallFault `invalid-argument`
 */
export function checkAllowed(allowed: Uint32Array, rows: number, vocabularySize: number): void {
  const words = Math.ceil(vocabularySize / 32);
  if (allowed.length !== rows * words) {
    throw fault(
      'invalid-argument',
      `a token mask of ${allowed.length} words; ${rows} rows of ${words} words are expected`,
    );
  }
  // The bits of a row's last word that stand for tokens.
  const lastBits = vocabularySize % 32 === 0 ? 0xffff_ffff : 2 ** (vocabularySize % 32) - 1;
  for (let row = 0; row < rows; row++) {
    let allowedBits = 0;
    for (let word = 0; word < words - 1; word++) allowedBits |= allowed[row * words + word] as number;
    allowedBits |= (allowed[(row + 1) * words - 1] as number) & lastBits;
    if (allowedBits === 0) throw fault('invalid-argument', `row ${row} of the token mask allows no token`);
  }
}
