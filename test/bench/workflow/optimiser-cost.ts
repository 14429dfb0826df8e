/** A guest that measures the time to make and to optimise the graphs of the applications. */
import { defineInferlet } from '@pie/inferlet';
import { type Graph, optimise } from '@pie/inferlet/workflow';
import { app as advancedRag } from '../../../functions/advanced-rag/index.ts';
import { app as contextualRetrieval } from '../../../functions/contextual-retrieval/index.ts';
import { app as documentQa } from '../../../functions/document-qa/index.ts';
import { app as searchGeneration } from '../../../functions/search-generation/index.ts';

/** Repetitions for each graph: the clock counts whole milliseconds, and one repetition may take less. */
const REPETITIONS = 40;

interface Cost {
  readonly nodes: number;
  /** Time to make and check the graph, milliseconds. */
  readonly makeMs: number;
  /** Time of all passes. */
  readonly optimiseMs: number;
}

async function costOf(graph: () => Promise<Graph>): Promise<Cost> {
  const graphs: Graph[] = [];
  const startMs = Date.now();
  for (let i = 0; i < REPETITIONS; i++) graphs.push(await graph());
  const madeMs = Date.now();
  for (const each of graphs) optimise(each);
  return {
    nodes: graphs[0]?.nodes.length ?? 0,
    makeMs: (madeMs - startMs) / REPETITIONS,
    optimiseMs: (Date.now() - madeMs) / REPETITIONS,
  };
}

/** Inputs of the applications, by the name of the function. */
interface Inputs {
  readonly 'search-generation': Parameters<typeof searchGeneration.graph>[0];
  readonly 'document-qa': Parameters<typeof documentQa.graph>[0];
  readonly 'advanced-rag': Parameters<typeof advancedRag.graph>[0];
  readonly 'contextual-retrieval': Parameters<typeof contextualRetrieval.graph>[0];
}

export const run = defineInferlet(async (inputs: Inputs) => ({
  'search-generation': await costOf(() => searchGeneration.graph(inputs['search-generation'])),
  'document-qa/tree': await costOf(() => documentQa.graph({ ...inputs['document-qa'], mode: 'tree' })),
  'document-qa/refine': await costOf(() => documentQa.graph({ ...inputs['document-qa'], mode: 'refine' })),
  'advanced-rag': await costOf(() => advancedRag.graph(inputs['advanced-rag'])),
  'contextual-retrieval': await costOf(() => contextualRetrieval.graph(inputs['contextual-retrieval'])),
}));
