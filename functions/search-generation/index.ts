import { defineInferlet, fetch, InferletError } from '@pie/inferlet';
import { type Builder, prompt, workflow } from '@pie/inferlet/workflow';
import { passesNamed } from '../rag-shared/passes.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly question: string;
  readonly engine: string;
  readonly search?: 'always' | 'when-needed';
  readonly queries?: number;
  readonly results?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly proxy?: string;
  readonly passes?: readonly string[];
}

/** Most tokens of the draft. */
const DRAFT_TOKENS = 32;
/** Most tokens of all queries together. */
const QUERY_TOKENS = 48;
const INSTRUCTION = 'Answer the question from what a search engine found. Write one or two short sentences.\n';

/** Generation with a search engine: a proxy model drafts an answer, judges whether it is enough, and writes the queries for the search. */
export const app = workflow('search-generation', (g: Builder, { question, engine, ...input }: Input) => {
  const { search = 'when-needed', queries = 2, results = 2, maxTokens = 48, model, proxy = model } = input;
  const draft = g.component('draft', () =>
    g.generate(prompt`Question: ${question}\nAnswer:`, { maxTokens: DRAFT_TOKENS, model: proxy, stop: '\n' }),
  );
  const needed = g.component('judge', () => {
    if (search === 'always') return g.call('always', {}, 'flag', () => true, { kind: 'aggregate' });
    const judged = prompt`Question: ${question}\nAnswer:${draft}\nIs the answer sure and complete? Say yes or no:`;
    const { text } = g.select(g.prefill(judged, { model: proxy }), [' yes', ' no']);
    return g.call('needed', { text }, 'flag', (given) => given.text === ' no', { kind: 'aggregate' });
  });
  const written = g.component('queries', () => {
    const ask = prompt`Write ${queries} queries for a search engine, one sentence each.\nQuestion: ${question}\nQueries:`;
    return g.items(g.prefill(ask, { model: proxy }), { by: 'sentence', count: queries }, { maxTokens: QUERY_TOKENS });
  });
  const foundText = () => {
    const ask = (given: { queries: readonly string[] }, { signal }: { signal: Signal }) =>
      // The model may write fewer queries; the others are empty.
      Promise.all(given.queries.map((query) => (query === '' ? [] : resultsOf(engine, query, signal))));
    const options = { kind: 'tool-call', each: { port: 'queries', batch: 1 }, retries: 1 } as const;
    const lists = g.call('search', { queries: written }, 'list', ask, options);
    const merge = (given: { lists: readonly unknown[] }) => firstOf(given.lists as string[][], results).join('\n');
    return g.call('merge', { lists }, 'text', merge, { kind: 'aggregate' });
  };
  const answer = g.component('answer', () =>
    g.condition(
      needed,
      () =>
        g.generate(prompt`${INSTRUCTION}Question: ${question}\nFound:\n${foundText()}\nAnswer:`, {
          maxTokens,
          model,
          stop: '\n',
        }),
      () => draft,
    ),
  );
  return { answer, draft, searched: needed, queries: written };
});

/** The first texts of all lists, taken from the lists in turns, without duplicates. */
function firstOf(lists: readonly (readonly string[])[], count: number): string[] {
  const longest = Math.max(0, ...lists.map(({ length }) => length));
  const inTurns = Array.from({ length: longest }, (_, rank) => lists.flatMap((list) => list.slice(rank, rank + 1)));
  return [...new Set(inTurns.flat())].slice(0, count);
}

type Signal = NonNullable<Parameters<typeof fetch>[1]>['signal'];

/** Texts that the search engine finds: a JSON list, of texts or of objects with a `text`. */
async function resultsOf(engine: string, query: string, signal: Signal): Promise<string[]> {
  using response = await fetch(`${engine}${encodeURIComponent(query)}`, { signal });
  if (!response.ok) throw new InferletError('unavailable', `The search engine answered ${response.status}.`);
  const found: unknown = await response.json();
  if (!Array.isArray(found))
    throw new InferletError('invalid-argument', 'The search engine must answer with a JSON list.');
  return found.map((each) =>
    typeof each === 'string' ? each : String((each as { text?: unknown } | null)?.text ?? ''),
  );
}

export const run = defineInferlet(({ passes, ...input }: Input) => app.run(input, { passes: passesNamed(passes) }));
