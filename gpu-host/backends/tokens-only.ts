import { NOTHING_DRAWN, type TopTokens } from './backend.ts';

/** Turns an answer with probabilities into the answer to a `tokensOnly` request. A row whose logits are NaN begins with `NOTHING_DRAWN`. */
export function tokensOnly({ topK, tokens, logProbabilities }: TopTokens): TopTokens {
  const marked = tokens.map((token, i) =>
    i % topK === 0 && Number.isNaN(logProbabilities[i]) ? NOTHING_DRAWN : token,
  );
  return { topK, tokens: marked, logProbabilities: new Float32Array(0) };
}
