import { defineInferlet } from '@pie/inferlet';
import { type Builder, workflow } from '@pie/inferlet/workflow';
import { passagesOf, scan } from '../rag-shared/passages.ts';
import { passesNamed } from '../rag-shared/passes.ts';
import { type DocumentInput, synthesize } from '../rag-shared/synthesis.ts';

/** Question answering from a document with plain retrieval: embed the passages, find the nearest, answer from them. */
export const app = workflow('document-qa', (g: Builder, { document, question, topK = 3, ...input }: DocumentInput) => {
  const { mode = 'tree', passageCharacters = 240, maxTokens = 32, model, encoder } = input;
  const passages = passagesOf(document, passageCharacters);
  const vectors = g.component('ingestion', () => g.embed(passages, { model: encoder }));
  const asked = g.component('question', () => g.embed([question], { model: encoder }));
  const found = g.component('search', () => {
    const search = (inputs: { vectors: readonly Float32Array[]; asked: readonly Float32Array[] }) => {
      const nearest = scan(passages, inputs.vectors);
      return nearest(inputs.asked[0] ?? new Float32Array(), topK);
    };
    return g.call('search', { vectors, asked }, 'texts', search, { kind: 'searching' });
  });
  const count = Math.min(topK, passages.length);
  const answer = g.component('synthesis', () => {
    const each = Array.from({ length: count }, (_, i) => g.at(found, i));
    return synthesize(g, question, each, { mode, maxTokens, model });
  });
  return { answer, found };
});

export const run = defineInferlet(({ passes, ...input }: DocumentInput) =>
  app.run(input, { passes: passesNamed(passes) }),
);
