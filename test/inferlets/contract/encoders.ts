/** Cases of `embedding` and `rerank`, on tiny random models. */
import { embed as embedTexts, rerank as rankTexts } from '@pie/inferlet';
import { embedding, rerank, settle } from '@pie/inferlet/raw';
import { type Cases, NO_MODEL, near } from './case.ts';

const [ENCODER, RANKER] = ['tiny-encoder', 'tiny-ranker'];
const CAUSAL = 'stories15m';
const TEXTS = ['the king of france', 'paris', 'the queen', ''];
const TOO_MANY = new Array<string>(257).fill('king');

export const encoderCases: Cases = {
  'embedding.encoders': {
    ok: () => {
      const found = embedding
        .encoders()
        .map(({ name, kind, size, contextLength }) => [name, kind, size, contextLength]);
      const expected = [
        [ENCODER, 'embedding', 32, 64],
        [RANKER, 'reranker', 1, 64],
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
      const lengths = vectors.map((vector) => vector.reduce((sum, value) => sum + value * value, 0));
      const none = await settle(embedding.embed('', []));
      const controller = new AbortController();
      const abortedCall = embedTexts(new Array<string>(600).fill('the king of france'), { signal: controller.signal });
      controller.abort();
      const abortCode = await abortedCall.then(
        () => '',
        ({ code }) => code,
      );
      return (
        named.size === 32 &&
        named.cut === 0 &&
        cut === 1 &&
        tokens === named.tokens + 64 &&
        near(named.values, byDefault.values) &&
        near(named.values.slice(32, 64), vectors[1] ?? []) &&
        near(lengths, [1, 1, 1, 1, 1]) &&
        none.values.length === 0 &&
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
        named.values.length === 4 && near([...named.values].reverse(), scores) && sorted && many.scores.length === 257
      );
    },
    fails: {
      'not-found': () => settle(rerank.rerank(CAUSAL, 'who?', TEXTS)),
      unsupported: () => settle(rerank.rerank(ENCODER, 'who?', TEXTS)),
      'limit-exceeded': () => settle(rerank.rerank(RANKER, 'x'.repeat(200_000), TEXTS)),
    },
  },
};
