/**
 * Reads the attention that the tokens of a prompt receive, and the outputs after the prompt: the probabilities of the next token, their entropy,
 * and the state. For the end-to-end tests of `introspect` and `output-text`.
 */
import { Context, defineInferlet, entropy, logProbabilities, model, state, tokenize } from '@pie/inferlet';
import { allocate, forward, inputText, introspect, Queue, settle } from '@pie/inferlet/raw';

interface Input {
  readonly prompt: string;
  /** Number of first tokens that are computed into pages before the others; half of the prompt by default. */
  readonly cached?: number;
}

export const run = defineInferlet(async ({ prompt, cached }: Input) => {
  const { name, vocabularySize, traits } = model();
  using queue = new Queue(name);
  const tokens = tokenize(prompt);
  const split = cached ?? tokens.length >> 1;
  const pageSize = allocate.pageSize(queue);
  const pages = allocate.allocatePages(queue, Math.ceil(tokens.length / pageSize));
  const embeds = allocate.allocateEmbeds(queue, tokens.length);
  inputText.embedText(
    queue,
    tokens,
    tokens.map((_, i) => i),
    embeds,
  );
  const cachedPages = pages.slice(0, Math.ceil(split / pageSize));
  // This call fills the pages. It reads no earlier pages, writes no output states, and has no mask.
  if (split > 0) forward.forward(queue, [], embeds.slice(0, split), cachedPages, [], undefined);
  const rest = embeds.slice(split);
  const scores = await settle(introspect.forwardScores(queue, cachedPages, rest, pages, [], undefined));

  using context = new Context();
  context.fill(tokens);
  const best = await context.nextDistribution(5);
  const allLogProbabilities = await logProbabilities(
    context,
    Array.from({ length: vocabularySize }, (_, token) => token),
  );
  return {
    traits,
    inputs: rest.length,
    /** Slots of the pages that the scored inputs read, empty ones included. */
    slots: cachedPages.length * pageSize,
    scores,
    best: { tokens: Array.from(best.tokens), logProbabilities: Array.from(best.logProbabilities) },
    /** The log-probabilities of the same tokens as in `best`, from another call. */
    same: await logProbabilities(context, best.tokens),
    /** Sum of the probabilities of all tokens, which must be 1. */
    mass: allLogProbabilities.reduce((sum, value) => sum + Math.exp(value), 0),
    entropy: await entropy(context),
    /** The value that `entropy` must have. */
    entropyByHand: allLogProbabilities.reduce((sum, value) => sum - value * Math.exp(value), 0),
    stateLength: (await state(context)).length,
  };
});
