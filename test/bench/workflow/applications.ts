import { invoke } from '#test/harness/events.ts';
import type { Platform } from '#test/harness/platform.ts';
import { PASSES } from '../../../functions/sdk/src/workflow/passes.ts';
import { outputOf } from '../clients.ts';

/** One way to run an application: the workflow optimiser applies these passes to the application's graph. */
export interface Way {
  readonly name: string;
  readonly passes: readonly string[];
}

const passNames = PASSES.map(({ name }) => name);
/** The first baseline of the Ayo paper (ASPLOS '25, section 7.1): components run one after another. */
export const MODULES: Way = { name: 'modules', passes: [] };
/** The second baseline of the Ayo paper: independent components run at the same time. */
export const PARALLEL: Way = { name: 'parallel modules', passes: ['parallel-components'] };
export const ALL_PASSES: Way = { name: 'all passes', passes: passNames };
/** All passes except batching by topology. An engine then serves calls first come, first served. */
export const FIRST_COME: Way = { name: 'first come', passes: passNames.filter((name) => name !== 'topology-batching') };
/** Each pass alone. `context-prefetch` is left out because it changes nothing: no application opens a saved context. */
export const SINGLE_PASSES: readonly Way[] = passNames
  .filter((name) => name !== 'context-prefetch')
  .map((name) => ({ name, passes: [name] }));

/** The applications of the Ayo paper. `document-qa` appears twice, once for each mode (after the `/`) in which it makes its answer. */
export const APPLICATIONS = [
  'search-generation',
  'document-qa/tree',
  'document-qa/refine',
  'advanced-rag',
  'contextual-retrieval',
] as const;

/** The function that runs an application: the name before the `/`. */
export const functionOf = (application: string): string => application.split('/')[0] as string;

/** The size of the queries' work. */
export interface Shape {
  /** Number of sentences in a document, by function name. `others` is the number for all functions without an entry. */
  readonly sentences: Readonly<Record<string, number>> & { readonly others: number };
  /** Further members of the input, by function name. */
  readonly inputs: Readonly<Record<string, object>>;
}

/**
 * Sends queries to the applications and compares their results. The number of a query decides its document and question. All ways therefore do the
 * same work for the same number.
 */
export class Queries {
  /** First result of each query, by `<application> <number>`. */
  readonly results = new Map<string, string>();
  /** The queries, by the same keys, of which a later result differed from the first one. */
  readonly differing = new Set<string>();
  readonly #platform: Platform;
  readonly #shape: Shape;
  readonly #searchEngine: string;

  /** @param searchEngine address of the search engine */
  constructor(platform: Platform, shape: Shape, searchEngine: string) {
    this.#platform = platform;
    this.#shape = shape;
    this.#searchEngine = searchEngine;
  }

  /** Sends one query, records its result, and returns the time from the request to the outcome, in milliseconds. */
  async time(application: string, { passes }: Way, query: number): Promise<number> {
    const [name = '', mode] = application.split('/');
    const input = { ...this.input(name, query), ...(mode && { mode }), passes };
    const startMs = performance.now();
    const output = JSON.stringify(outputOf(await invoke(this.#platform, name, input)));
    const tookMs = performance.now() - startMs;
    const key = `${application} ${query}`;
    const firstOutput = this.results.get(key) ?? output;
    this.results.set(key, firstOutput);
    if (output !== firstOutput) this.differing.add(key);
    return tookMs;
  }

  /** Sends `count` queries at once, numbered from `first` on, and returns their times. */
  timesAtOnce(application: string, way: Way, count: number, first: number): Promise<number[]> {
    return Promise.all(Array.from({ length: count }, (_, i) => this.time(application, way, first + i)));
  }

  /** The input of the function `name` for the query with this number. */
  input(name: string, query: number): object {
    const { sentences, inputs } = this.#shape;
    const question = `Number ${query}: who went to the park with the dog?`;
    if (name === 'search-generation')
      return { question, engine: this.#searchEngine, search: 'always', ...inputs[name] };
    const length = sentences[name] ?? sentences.others;
    const document = Array.from({ length }, (_, i) => sentenceOf(query, i)).join(' ');
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
 * Sentence `i` of the document of a query. Sentences differ by several words. If they differed by the number alone, their embedding vectors would be
 * nearly equal, and rounding errors would decide the order of a search. These errors depend on the batch size, so each way would retrieve other
 * passages and do other work.
 */
function sentenceOf(query: number, i: number): string {
  const pick = (list: readonly string[], at: number) => list[at % list.length];
  const [person, companion] = [pick(PEOPLE, i + query), pick(PEOPLE, i + query + 3)];
  const [place, animal, end] = [pick(PLACES, i + 2 * query), pick(ANIMALS, i), pick(ENDS, i + query)];
  return `On day ${i} ${person} and ${companion} went to the ${place} and saw a big ${animal} that ${end}.`;
}
