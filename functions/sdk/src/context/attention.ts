import { checkCount, InferletError } from '../errors.ts';
import type { Window } from '../generate/generation.ts';
import { allocate, introspect, outputText } from '../raw.ts';
import { type Context, sequenceOf } from './context.ts';

/**
 * Hides the tokens at positions `[from, to)` from all later computation; the text stays unchanged. The context's last token cannot be
 * hidden. A saved context keeps its hidden tokens. After opening it, saved tokens, and tokens that share a page with them, can be neither
 * hidden nor shown.
 */
export const mask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, true);

/** Shows tokens that {@link mask} has hidden. */
export const unmask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, false);

/**
 * Keeps the last `size` tokens in sight, and the first `sink` tokens if any. Tokens keep their positions, so the model's context length
 * still limits the text. Pages out of sight are freed. Filled tokens see all filled tokens; the window slides with each generated token
 * (Beltagy et al., Longformer, 2020). The tokens of an opened context go out of sight page by page.
 */
export function slidingWindow(options: { readonly size: number; readonly sink?: number }): Window {
  const { size, sink = 0 } = options;
  checkCount('size', size);
  checkCount('sink', sink, 0);
  return {
    endless: false,
    slide: (sequence) => sequence.forget(sink, Math.min(sequence.cached, sequence.tokens.length - size)),
  };
}

/**
 * Allows generation without end: keeps the first `sink` and the last `window` tokens, and renumbers their positions without gaps (Xiao et
 * al., Efficient Streaming Language Models with Attention Sinks, 2024). The context then holds these tokens only. Each move copies the
 * window, so the window moves only after `slack` tokens (a quarter of the window by default). Needs `maxTokens` and a model whose keys can
 * be rotated again.
 */
export function attentionSink(options: {
  readonly sink?: number;
  readonly window: number;
  readonly slack?: number;
}): Window {
  const { sink = 4, window, slack = Math.ceil(window / 4) } = options;
  checkCount('sink', sink, 0);
  checkCount('window', window);
  checkCount('slack', slack, 0);
  return {
    endless: true,
    slide(sequence) {
      const { contextLength, name } = sequence.model;
      if (sink + window + slack >= contextLength) {
        const text = `${sink} + ${window} + ${slack} tokens must be fewer than the context length of ${name} (${contextLength}).`;
        throw new InferletError('invalid-argument', text);
      }
      // Several pending tokens, such as a prompt, are first computed with all tokens in sight.
      if (sequence.pending === 1 && sequence.tokens.length > sink + window + slack) sequence.compact(sink, window);
    },
  };
}

async function setMask(context: Context, from: number, to: number, hidden: boolean): Promise<void> {
  const sequence = sequenceOf(context);
  const computed = sequence.prefill();
  sequence.mask(from - sequence.base, to - sequence.base, hidden);
  await computed;
}

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
