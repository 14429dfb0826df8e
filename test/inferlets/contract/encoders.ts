/** Cases of `embedding` and `rerank`, on tiny random models. */
import { embed as embedTexts, rerank as rankTexts } from '@pie/inferlet';
import { embedding, rerank, settle } from '@pie/inferlet/raw';
import { type Cases, NO_MODEL, near } from './case.ts';

const [ENCODER, RANKER] = ['tiny-encoder', 'tiny-ranker'];
const CAUSAL = 'stories15m';
/** Dimensions of the encoder's vectors. */
const SIZE = 32;
/** Longest text of both models, in tokens; they cut longer ones. */
const CONTEXT_LENGTH = 64;
const TEXTS = ['the king of france', 'paris', 'the queen', ''];
/** One text more than a call may have. */
const TOO_MANY = new Array<string>(257).fill('king');

export const encoderCases: Cases = {
  'embedding.encoders': {
    ok: () => {
      const found = embedding
        .encoders()
        .map(({ name, kind, size, contextLength }) => [name, kind, size, contextLength]);
      const expected = [
        [ENCODER, 'embedding', SIZE, CONTEXT_LENGTH],
        [RANKER, 'reranker', 1, CONTEXT_LENGTH],
      ];
      return JSON.stringify(found) === JSON.stringify(expected);
    },
  },
  'embedding.embed': {
    ok: async () => {
      const [named, byDefault] = await Promise.all([
        settle(embedding.embed(ENCODER, TEXTS)),
        settle(embedding.embed('', TEXTS)),
      ]);
      const { vectors, tokens, cut } = await embedTexts([...TEXTS, 'king '.repeat(100)]);
      const squaredLengths = vectors.map((vector) => vector.reduce((sum, value) => sum + value * value, 0));
      const empty = await settle(embedding.embed('', []));
      const controller = new AbortController();
      const abortedCall = embedTexts(new Array<string>(600).fill('the king of france'), { signal: controller.signal });
      controller.abort();
      const abortCode = await abortedCall.then(
        () => '',
        ({ code }) => code,
      );
      return (
        named.size === SIZE &&
        named.cut === 0 &&
        cut === 1 &&
        tokens === named.tokens + CONTEXT_LENGTH &&
        near(named.values, byDefault.values) &&
        near(named.values.slice(SIZE, 2 * SIZE), vectors[1] ?? []) &&
        near(squaredLengths, [1, 1, 1, 1, 1]) &&
        empty.values.length === 0 &&
        abortCode === 'cancelled'
      );
    },
    fails: {
      'not-found': () => settle(embedding.embed(NO_MODEL, TEXTS)),
      unsupported: () => settle(embedding.embed(RANKER, TEXTS)),
      'limit-exceeded': () => settle(embedding.embed(ENCODER, TOO_MANY)),
    },
  },
  'rerank.rerank': {
    ok: async () => {
      const named = await settle(rerank.rerank(RANKER, 'who is the king?', TEXTS));
      const { scores, ranking } = await rankTexts('who is the king?', [...TEXTS].reverse());
      const best = ranking.map((i) => scores[i] ?? 0);
      const sorted = best.every((score, i) => i === 0 || score <= (best[i - 1] ?? 0));
      const many = await rankTexts('king', TOO_MANY);
      return (
        named.values.length === 4 &&
        near([...named.values].reverse(), scores) &&
        sorted &&
        many.scores.length === TOO_MANY.length
      );
    },
    fails: {
      'not-found': () => settle(rerank.rerank(CAUSAL, 'who?', TEXTS)),
      unsupported: () => settle(rerank.rerank(ENCODER, 'who?', TEXTS)),
      'limit-exceeded': () => settle(rerank.rerank(RANKER, 'x'.repeat(200_000), TEXTS)),
    },
  },
};
