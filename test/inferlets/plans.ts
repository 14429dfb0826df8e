/** Measures in a guest how long an app takes to make a query's graph, to optimise it with all passes, to find its plan, and to run the query. */
import { defineInferlet } from '@pie/inferlet';
import { optimise, PASSES } from '@pie/inferlet/workflow';
import { app as advancedRag } from '../../functions/advanced-rag/index.ts';
import { app as contextualRetrieval } from '../../functions/contextual-retrieval/index.ts';
import { app as documentQa } from '../../functions/document-qa/index.ts';
import { app as judge } from '../../functions/judge/index.ts';
import { app as multiTurn } from '../../functions/multi-turn/index.ts';
import { app as treeOfThought } from '../../functions/tree-of-thought/index.ts';
import { app as treeSearch } from '../../functions/tree-search/index.ts';

const APPS = {
  'advanced-rag': advancedRag,
  'contextual-retrieval': contextualRetrieval,
  'document-qa': documentQa,
  judge,
  'multi-turn': multiTurn,
  'tree-search': treeSearch,
  'tree-of-thought': treeOfThought,
};

interface Input {
  readonly name: keyof typeof APPS;
  /** One input for each query. */
  readonly inputs: readonly never[];
  /** Repetitions of each step that is too short to measure once. */
  readonly times: number;
}

export const run = defineInferlet(async ({ name, inputs, times }: Input) => {
  const app = APPS[name];
  const [input] = inputs as readonly [never];
  const queriesMs: number[] = [];
  for (const each of inputs) queriesMs.push(await timeOf(1, () => app.run(each)));
  const graph = await app.graph(input);
  return {
    nodes: graph.nodes.length,
    queriesMs,
    makeMs: await timeOf(times, () => app.graph(input)),
    passesMs: await timeOf(times, () => optimise(graph)),
    planMs: app.plans?.find(input, PASSES) && (await timeOf(10 * times, () => app.plans?.find(input, PASSES))),
  };
});

/** Mean time of a call in milliseconds, over `times` calls. The clock counts whole milliseconds. */
async function timeOf(times: number, call: () => unknown): Promise<number> {
  const startMs = Date.now();
  for (let i = 0; i < times; i++) await call();
  return (Date.now() - startMs) / times;
}
