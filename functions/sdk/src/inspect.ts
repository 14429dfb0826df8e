import { type Context, sequenceOf } from './context.ts';
import { InferletError } from './errors.ts';
import { allocate, introspect, outputText } from './raw.ts';

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

/**
 * The attention that each token of the context receives from those that were not computed yet: all of the text the first time, the last
 * token once the rest is computed. Averaged over layers and heads and added up over the tokens that look, so the numbers add up to
 * how many those are; 0 for what is masked or gone. Adding them up over a generation tells which tokens nobody looks at (Zhang et
 * al., H2O, 2023). Needs the trait introspect; the last token is not taken.
 */
export async function scores(context: Context): Promise<number[]> {
  const sequence = sequenceOf(context);
  const { adapter, model, queue, cache } = sequence;
  if (adapter !== undefined) throw new InferletError('unsupported', 'What an adapter looks at is not told.');
  const received = sequence.tokens.map(() => 0);
  const add = (token: number, score = 0) => {
    received[token] = (received[token] as number) + score;
  };
  const look = async (count: number, write: boolean) => {
    const start = sequence.next(true);
    const { inPages, outPages } = cache.access(write ? count : 0);
    const slots = Array.from({ length: start }, (_, token) => cache.slotOf(token));
    const inputs = sequence.embed(start, count, count);
    if (write) cache.advance(count);
    sequence.forwardCalls++;
    const answer = sequence.settle(introspect.forwardScores(queue, inPages, inputs, outPages, [], undefined), start);
    allocate.freeEmbeds(queue, inputs);
    const all = await answer;
    for (const [token, slot] of slots.entries()) add(token, all[slot]);
    for (let i = 0; i < count; i++) add(start + i, all[inPages.length * model.pageSize + i]);
  };
  const { pending } = sequence;
  // Both are under way at once.
  await Promise.all([pending > 1 ? look(pending - 1, true) : undefined, look(1, false)]);
  return received;
}
