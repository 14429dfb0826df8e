import { invoke } from '#test/harness/events.ts';
import type { Platform } from '#test/harness/platform.ts';
import { PASSES } from '../../../functions/sdk/src/workflow/passes.ts';
import { outputOf } from '../clients.ts';

/** One way to run an application: with these passes of the optimiser. */
export interface Way {
  readonly name: string;
  readonly passes: readonly string[];
}

const passNames = PASSES.map(({ name }) => name);
/** The first baseline of Ayo (ASPLOS '25, section 7.1): one component after another. */
export const MODULES: Way = { name: 'modules', passes: [] };
/** The second baseline of Ayo: independent components at once. */
export const PARALLEL: Way = { name: 'parallel modules', passes: ['parallel-components'] };
export const ALL_PASSES: Way = { name: 'all passes', passes: passNames };
/** Without batching by topology, an engine serves calls first come, first served. */
export const FIRST_COME: Way = { name: 'first come', passes: passNames.filter((name) => name !== 'topology-batching') };
/** Each pass by itself, except `context-prefetch`: no application opens a saved context. */
export const SINGLE_PASSES: readonly Way[] = passNames
  .filter((name) => name !== 'context-prefetch')
  .map((name) => ({ name, passes: [name] }));

/** The applications of Ayo; document QA synthesizes in two ways. */
export const APPLICATIONS = [
  'search-generation',
  'document-qa/tree',
  'document-qa/refine',
  'advanced-rag',
  'contextual-retrieval',
] as const;

export const functionOf = (application: string): string => application.split('/')[0] as string;

/** The work of a query. */
export interface Shape {
  /** Sentences of a document, by function; `others` is for functions without an entry. */
  readonly sentences: Readonly<Record<string, number>> & { readonly others: number };
  /** Further inputs of a function, by its name. */
  readonly inputs: Readonly<Record<string, object>>;
}

/** Sends queries of the applications. Queries of the same number have the same documents and answers, so that all ways do the same work. */
export class Queries {
  /** First result of each query, by application and number. */
  readonly results = new Map<string, string>();
  /** Queries whose results differed between ways. */
  readonly differing = new Set<string>();
  readonly #platform: Platform;
  readonly #shape: Shape;
  readonly #searchEngine: string;

  /** @param engine address of the search engine */
  constructor(platform: Platform, shape: Shape, engine: string) {
    this.#platform = platform;
    this.#shape = shape;
    this.#searchEngine = engine;
  }

  /** Time from the request to the outcome, milliseconds. */
  async time(application: string, { passes }: Way, query: number): Promise<number> {
    const [name = '', mode] = application.split('/');
    const input = { ...this.input(name, query), ...(mode && { mode }), passes };
    const startMs = performance.now();
    const output = JSON.stringify(outputOf(await invoke(this.#platform, name, input)));
    const tookMs = performance.now() - startMs;
    const key = `${application} ${query}`;
    const first = this.results.get(key) ?? output;
    this.results.set(key, first);
    if (output !== first) this.differing.add(key);
    return tookMs;
  }

  /** Times of queries that begin at once, numbered from `first` on. */
  timesAtOnce(application: string, way: Way, count: number, first: number): Promise<number[]> {
    return Promise.all(Array.from({ length: count }, (_, i) => this.time(application, way, first + i)));
  }

  /** Input of a function for the query of this number. */
  input(name: string, query: number): object {
    const { sentences, inputs } = this.#shape;
    const question = `Number ${query}: who went to the park with the dog?`;
    if (name === 'search-generation')
      return { question, engine: this.#searchEngine, search: 'always', ...inputs[name] };
    const sentence = (_: unknown, i: number) => sentenceOf(query, i);
    const document = Array.from({ length: sentences[name] ?? sentences.others }, sentence).join(' ');
    return { document, question, ...inputs[name] };
  }
}

const PEOPLE = ['Tim', 'Lily', 'Tom', 'Mia', 'Ben', 'Anna', 'Max', 'Sue', 'Jack', 'Amy', 'Sam'];
const PLACES = ['park', 'lake', 'forest', 'school', 'beach', 'farm', 'zoo'];
const ANIMALS = [
  'dog',
  'cat',
  'bird',
  'fox',
  'duck',
  'frog',
  'horse',
  'mouse',
  'bear',
  'rabbit',
  'fish',
  'snail',
  'pig',
];
const ENDS = ['ran away', 'was asleep', 'wanted to play', 'found a red ball', 'ate an apple'];

/**
 * Makes sentences that differ by more than a number. The vectors of near copies would differ by no more than rounding errors, which depend on the
 * batch's size. Each way would then retrieve other passages and do other work.
 */
function sentenceOf(query: number, i: number): string {
  const pick = (list: readonly string[], at: number) => list[at % list.length];
  return `On day ${i} ${pick(PEOPLE, i + query)} and ${pick(PEOPLE, i + query + 3)} went to the ${pick(PLACES, i + 2 * query)} and saw a big ${pick(ANIMALS, i)} that ${pick(ENDS, i + query)}.`;
}
