import { type Context, sequenceOf } from './context.ts';
import { outputText } from './raw.ts';

/** Natural logarithms of the probabilities of `tokens` to come next, over the whole vocabulary at temperature 1; none is taken. */
export function logProbabilities(context: Context, tokens: ArrayLike<number>): Promise<number[]> {
  const candidates = Uint32Array.from(tokens);
  return sequenceOf(context).state((queue, embed) => outputText.logProbabilities(queue, embed, candidates));
}

/** Entropy of the next token's distribution, in nats: how unsure the model is. */
export function entropy(context: Context): Promise<number> {
  return sequenceOf(context).state((queue, embed) => outputText.entropy(queue, embed));
}

/** The state that follows the context's last token, as many numbers as the model's hidden size. */
export function state(context: Context): Promise<number[]> {
  return sequenceOf(context).state((queue, embed) => outputText.readEmbed(queue, embed));
}
