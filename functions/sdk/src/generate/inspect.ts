import { type Context, sequenceOf } from '../context/context.ts';
import { InferletError } from '../errors.ts';
import { allocate, introspect, outputText } from '../raw.ts';

/** Natural logarithm of the probability that each of `tokens` comes next, over the whole vocabulary at temperature 1. */
export function logProbabilities(context: Context, tokens: ArrayLike<number>): Promise<number[]> {
  const candidates = Uint32Array.from(tokens);
  return sequenceOf(context).state((queue, embed) => outputText.logProbabilities(queue, embed, candidates));
}

/** Entropy of the next token's distribution, in nats: a measure of the model's uncertainty. */
export function entropy(context: Context): Promise<number> {
  return sequenceOf(context).state((queue, embed) => outputText.entropy(queue, embed));
}

/** The model's state after the context's last token; its length is the model's hidden size. */
export function state(context: Context): Promise<number[]> {
  return sequenceOf(context).state((queue, embed) => outputText.readEmbed(queue, embed));
}

/**
 * The attention that each token of the context receives from the tokens not computed yet: from all tokens the first time, from the last one
 * once the rest is computed. Scores are averaged over layers and heads and summed over the attending tokens, so they add up to the number
 * of attending tokens; masked or dropped tokens score 0. Sums over a generation show which tokens receive no attention (Zhang et al., H2O,
 * 2023). Needs the trait introspect. The last token stays pending.
 */
export async function scores(context: Context): Promise<number[]> {
  const sequence = sequenceOf(context);
  const { adapter, model, queue, cache } = sequence;
  if (adapter !== undefined)
    throw new InferletError('unsupported', 'scores() is not supported for a context with an adapter.');
  const received = sequence.tokens.map(() => 0);
  const add = (token: number, score = 0) => {
    received[token] = (received[token] as number) + score;
  };
  // Computes the next `count` tokens, keeps their keys and values with `write`, and adds the attention that they pay.
  const scorePass = async (count: number, write: boolean) => {
    const start = sequence.firstPending(true);
    const { inPages, outPages } = cache.access(write ? count : 0);
    const slots = Array.from({ length: start }, (_, token) => cache.slotOf(token));
    const inputs = sequence.embed(start, count, count);
    if (write) cache.advance(count);
    sequence.forwardCalls++;
    const answer = sequence.settle(introspect.forwardScores(queue, inPages, inputs, outPages, [], undefined), start);
    allocate.freeEmbeds(queue, inputs);
    const slotScores = await answer;
    for (const [token, slot] of slots.entries()) add(token, slotScores[slot]);
    for (let i = 0; i < count; i++) add(start + i, slotScores[inPages.length * model.pageSize + i]);
  };
  const { pending } = sequence;
  // Issue both calls before awaiting either.
  await Promise.all([pending > 1 ? scorePass(pending - 1, true) : undefined, scorePass(1, false)]);
  return received;
}
