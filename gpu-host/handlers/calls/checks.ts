import { type Draw, NOTHING_DRAWN, type TopTokens } from '../../backends/backend.ts';
import { fault } from '../../memory/fault.ts';
import type { Sampler } from '../../protocol/calls.ts';

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

/** Checks a guest's sampler. @throws CallFault `invalid-argument` naming the field. */
export function checkSampler(sampler: Sampler): void {
  const { temperature, topP, minP } = sampler;
  if (!(temperature >= 0 && temperature <= 1e6))
    throw fault('invalid-argument', `temperature ${temperature}; 0 to 1000000 is expected`);
  if (temperature === 0) return;
  if (!(topP > 0 && topP <= 1)) throw fault('invalid-argument', `top-p ${topP}; above 0 and at most 1 is expected`);
  if (!(minP >= 0 && minP <= 1)) throw fault('invalid-argument', `min-p ${minP}; 0 to 1 is expected`);
}

/**
 * Number of most probable tokens that a backend lists to sample from: the sampler's `topK`, or `maxTopK` when `topK` is 0 (no limit) or larger. A
 * backend that draws from the whole vocabulary looks at the other tokens where these do not decide.
 */
export function candidatesWanted(sampler: Sampler, maxTopK: number): number {
  if (sampler.temperature === 0) return 1;
  return sampler.topK === 0 || sampler.topK > maxTopK ? maxTopK : sampler.topK;
}

/** The draws at `positions`; undefined for a greedy sampler, which draws nothing. */
export function drawsOf(sampler: Sampler, positions: ArrayLike<number>): readonly Draw[] | undefined {
  const { temperature, topK, topP, minP, seed } = sampler;
  if (temperature === 0) return undefined;
  const draws: Draw[] = [];
  for (let i = 0; i < positions.length; i++)
    draws.push({ temperature, topK, topP, minP, seed, position: positions[i] as number });
  return draws;
}

/**
 * The sampled token of row `row`: the drawn one, or else the most probable one.
 * @throws CallFault `internal` when the model computed NaN, or when no token is left to draw
 */
export function tokenOf(top: TopTokens & { readonly drawn?: Uint32Array }, row: number): number {
  const { drawn, topK, tokens, logProbabilities } = top;
  const token = drawn ? drawn[row] : tokens[row * topK];
  if (token === undefined || token === NOTHING_DRAWN || Number.isNaN(logProbabilities[row * topK]))
    throw fault('internal', 'the model computed no numbers for this input');
  return token;
}
