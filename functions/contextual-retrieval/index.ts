import { defineInferlet } from '@pie/inferlet';
import { type Builder, prompt, workflow } from '@pie/inferlet/workflow';
import { best, passagesOf, scan } from '../rag-shared/passages.ts';
import { passesNamed } from '../rag-shared/passes.ts';
import { type DocumentInput, synthesize } from '../rag-shared/synthesis.ts';

/** The input that the schema in pie.json accepts. */
interface Input extends DocumentInput {
  readonly title?: string;
  readonly contextTokens?: number;
  /** Number of preceding passages that the model sees when it writes what a passage is about. */
  readonly before?: number;
  /** The model that writes what passages are about; `model` by default. */
  readonly contextModel?: string;
  /** Number of passages to find for the question; the reranker chooses from them. At least `topK`. */
  readonly candidates?: number;
  readonly ranker?: string;
}

/** Number of passages embedded together; small, so that the encoder need not wait for the contexts of many passages. */
const BATCH = 4;

/**
 * Contextual retrieval: for each passage, the model writes what the passage is about, and the passage is embedded and ranked together with that text.
 * The model sees only the passage and a few before it, so the document may be longer than the model's context.
 */
export const app = workflow('contextual-retrieval', (g: Builder, { document, question, topK = 2, ...input }: Input) => {
  const { title = '', mode = 'refine', passageCharacters = 240, contextTokens = 16, maxTokens = 32 } = input;
  const { model, contextModel = model, encoder, ranker, before = 1, candidates = 2 * topK } = input;
  const passages = passagesOf(document, passageCharacters);
  const contexts = g.component('contexts', () =>
    passages.map((passage, i) => {
      const precedingText = i === 0 ? title : passages.slice(Math.max(0, i - before), i).join(' ');
      const ask = prompt`${precedingText}\nThis part follows: ${passage}\nIn a few words, it is about`;
      return g.generate(ask, { maxTokens: contextTokens, model: contextModel, stop: '\n' });
    }),
  );
  const texts = contexts.map((context, i) =>
    g.call('passage', { context }, 'text', (inputs) => `${inputs.context.trim()}: ${passages[i]}`, {
      kind: 'aggregate',
    }),
  );
  const vectors = g.component('ingestion', () => g.embed(texts, { model: encoder, batch: BATCH }));
  const asked = g.component('question', () => g.embed([question], { model: encoder }));
  const found = g.component('search', () => {
    const search = (inputs: {
      texts: readonly string[];
      vectors: readonly Float32Array[];
      asked: readonly Float32Array[];
    }) => {
      const nearest = scan(inputs.texts, inputs.vectors);
      return nearest(inputs.asked[0] ?? new Float32Array(), Math.max(candidates, topK));
    };
    return g.call('search', { texts, vectors, asked }, 'texts', search, { kind: 'searching' });
  });
  const chosen = g.component('ranking', () => {
    const scores = g.rerank(question, found, { model: ranker });
    return g.call('best', { found, scores }, 'texts', (inputs) => best(inputs.found, inputs.scores, topK), {
      kind: 'aggregate',
    });
  });
  const count = Math.min(topK, passages.length);
  const answer = g.component('synthesis', () => {
    const each = Array.from({ length: count }, (_, i) => g.at(chosen, i));
    return synthesize(g, question, each, { mode, maxTokens, model });
  });
  return { answer, contexts, found: chosen };
});

export const run = defineInferlet(({ passes, ...input }: Input) => app.run(input, { passes: passesNamed(passes) }));
