import { defineInferlet } from '@pie/inferlet';
import { type Builder, prompt, workflow } from '@pie/inferlet/workflow';
import { best, passagesOf, scan } from '../rag-shared/passages.ts';
import { passesNamed } from '../rag-shared/passes.ts';
import { type DocumentInput, synthesize } from '../rag-shared/synthesis.ts';

/** The input that the schema in pie.json accepts. */
interface Input extends DocumentInput {
  readonly queries?: number;
  /** Number of passages to find for each question; the reranker chooses from them. At least `topK`. */
  readonly candidates?: number;
  readonly ranker?: string;
}

/** Maximum tokens that the model writes for all rewritten questions together. */
const EXPANSION_TOKENS = 64;

/** Question answering with query expansion and reranking: the model rewrites the question, each version finds passages, a reranker picks. */
export const app = workflow('advanced-rag', (g: Builder, { document, question, topK = 3, ...input }: Input) => {
  const { mode = 'refine', queries = 3, candidates = topK, passageCharacters = 240, maxTokens = 32 } = input;
  const { model, encoder, ranker } = input;
  const passages = passagesOf(document, passageCharacters);
  const vectors = g.component('ingestion', () => g.embed(passages, { model: encoder }));
  const expanded = g.component('expansion', () => {
    const ask = prompt`Ask the question in ${queries} other ways, one sentence each.\nQuestion: ${question}\nOther ways:`;
    return g.items(g.prefill(ask, { model }), { by: 'sentence', count: queries }, { maxTokens: EXPANSION_TOKENS });
  });
  // Embed questions one by one (`batch: 1`), so that each goes through search and ranking while the model still writes the next.
  const asked = g.component('questions', () => g.embed([question, ...expanded], { model: encoder, batch: 1 }));
  const lists = g.component('search', () => {
    const search = (inputs: { vectors: readonly Float32Array[]; asked: readonly Float32Array[] }) => {
      const nearest = scan(passages, inputs.vectors);
      return inputs.asked.map((query) => nearest(query, Math.max(candidates, topK)));
    };
    return g.call('search', { vectors, asked }, 'list', search, {
      kind: 'searching',
      each: { port: 'asked', batch: 1 },
    });
  });
  const chosen = g.component('ranking', () => {
    const scores = g.rerankEach(question, lists, { model: ranker });
    const pick = (inputs: { lists: readonly unknown[]; scores: readonly unknown[] }) =>
      best((inputs.lists as string[][]).flat(), (inputs.scores as number[][]).flat(), topK);
    return g.call('best', { lists, scores }, 'texts', pick, { kind: 'aggregate' });
  });
  const count = Math.min(topK, passages.length);
  const answer = g.component('synthesis', () => {
    const each = Array.from({ length: count }, (_, i) => g.at(chosen, i));
    return synthesize(g, question, each, { mode, maxTokens, model });
  });
  return { answer, queries: expanded, found: chosen };
});

export const run = defineInferlet(({ passes, ...input }: Input) => app.run(input, { passes: passesNamed(passes) }));
