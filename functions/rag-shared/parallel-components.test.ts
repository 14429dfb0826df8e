import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Builder, prompt } from '../sdk/src/workflow/builder.ts';
import { validate } from '../sdk/src/workflow/validate.ts';
import { parallelComponents } from './parallel-components.ts';

it('a component waits for the components that it reads from, also through nodes outside of components', () => {
  const g = new Builder('rag');
  const contexts = g.component('contexts', () => [1, 2].map((i) => g.generate(`Context ${i}:`, { maxTokens: 2 })));
  const texts = contexts.map((context) => g.call('passage', { context }, 'text', (inputs) => `${inputs.context}.`));
  const vectors = g.component('ingestion', () => g.embed(texts));
  const asked = g.component('question', () => g.embed(['Who?']));
  const found = g.component('search', () => g.call('search', { vectors, asked }, 'text', () => 'found'));
  g.component('log', () => g.call('log', {}, 'flag', () => true), { ordered: true });
  const answer = g.component('answer', () => g.generate(prompt`${found}`, { maxTokens: 2 }));
  const before = g.graph({ answer: { from: answer } });
  const graph = parallelComponents.apply(before);
  validate(graph);
  const after = Object.fromEntries(graph.nodes.map((node) => [node.module, node.after]));
  assert.deepEqual(after, {
    contexts: [],
    rag: [],
    ingestion: ['contexts'],
    question: [],
    search: ['ingestion', 'question'],
    log: ['contexts', 'ingestion', 'question', 'search'],
    answer: ['search'],
  });
  assert.deepEqual(before.nodes.find(({ module }) => module === 'question')?.after, ['ingestion']);
});
