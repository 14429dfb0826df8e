import { defineInferlet, detokenize, InferletError, specialTokens, tokenize } from '@pie/inferlet';
import { EvictingCache } from './cache.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly text: string;
  readonly policy?: 'attention' | 'recent';
  readonly budget?: number;
  readonly recent?: number;
  readonly maxTokens?: number;
  readonly model?: string;
}

/** Reads a text of any length with a cache of fixed size, then continues it. The cache evicts the tokens that received least attention. */
export const run = defineInferlet(async (input: Input) => {
  const { text, policy = 'attention', budget = 96, recent = 64, maxTokens = 0, model } = input;
  if (recent >= budget)
    throw new InferletError('invalid-argument', `recent (${recent}) must be below budget (${budget}).`);
  const { bos } = specialTokens(model);
  const tokens = [...(bos === null ? [] : [bos]), ...tokenize(text, { model })];
  if (tokens.length === 0) {
    const fault =
      '"text" is empty, and the model has no token that begins a text: give it a text of at least one character.';
    throw new InferletError('invalid-argument', fault);
  }
  const cache = new EvictingCache({ model, budget, recent: policy === 'attention' ? recent : budget });
  if (budget + STEP > cache.contextLength) {
    const fault = `budget (${budget}) must leave room for ${STEP} tokens in the model's context of ${cache.contextLength}.`;
    throw new InferletError('invalid-argument', fault);
  }
  let surprise = 0;
  let next = 0;
  for (let at = 0; at < tokens.length; at += STEP) {
    const answer = await cache.read(tokens.slice(at, at + STEP), tokens.slice(at + 1, at + 1 + STEP));
    for (const logProbability of answer.logProbabilities) surprise -= logProbability;
    next = answer.next;
  }
  const written: number[] = [];
  while (written.length < maxTokens) {
    written.push(next);
    ({ next } = await cache.read([next], []));
  }
  const perplexity = Math.exp(surprise / Math.max(1, tokens.length - 1));
  const { mostHeld, held } = cache;
  return { perplexity, tokens: tokens.length, mostHeld, held, text: detokenize(written, { model }), written };
});

/** Tokens read in one call. */
const STEP = 16;
