import type { Input, Node } from './graph.ts';

/** An engine whose efficient size is measured: a causal model or an encoder; without a name, the function's first one of the kind. */
export interface EngineName {
  readonly kind: 'model' | 'embedding' | 'reranking';
  readonly model: string | undefined;
}

/** Size of a batch of an engine, in tokens, up to which a larger batch takes little more time; undefined before it is measured. */
export type EfficientTokens = (engine: EngineName) => number | undefined;

interface Choice {
  readonly engine: EngineName;
  readonly choose: (tokens: number | undefined) => number | boolean;
  readonly chosen: number | boolean;
}

/** Choices that passes make by the efficient sizes of engines. A plan holds while later measurements lead to the same choices. */
export class Sizes {
  readonly #tokensOf: EfficientTokens;
  readonly #choices: Choice[] = [];

  /** @param tokensOf measured sizes; none by default */
  constructor(tokensOf: EfficientTokens = () => undefined) {
    this.#tokensOf = tokensOf;
  }

  /** Makes and records a choice by an engine's efficient size. `choose` must depend only on its argument. */
  choose<T extends number | boolean>(engine: EngineName, choose: (tokens: number | undefined) => T): T {
    const chosen = choose(this.#tokensOf(engine));
    this.#choices.push({ engine, choose, chosen });
    return chosen;
  }

  /** True when other measurements lead to the same choices. */
  hold(tokensOf: EfficientTokens): boolean {
    return this.#choices.every(({ engine, choose, chosen }) => choose(tokensOf(engine)) === chosen);
  }
}

/** Asks for the efficient size of each engine once, so that a workflow is planned by one measurement. */
export function askedOnce(tokensOf: EfficientTokens): EfficientTokens {
  const answers = new Map<string, number | undefined>();
  return (engine) => {
    const key = `${engine.kind} ${engine.model ?? ''}`;
    if (!answers.has(key)) answers.set(key, tokensOf(engine));
    return answers.get(key);
  };
}

/** Efficient batch of an encoder, in texts, before its time was measured. Such a batch takes about as long as a step of a model. */
export const EFFICIENT_TEXTS = 16;
/** Assumed characters of a token. */
const CHARACTERS_OF_TOKEN = 4;
/** Assumed tokens of a text that is not known yet: a passage of some sentences. */
const TEXT_TOKENS = 64;
/** Assumed tokens of a query that is not known yet: a question. */
const QUERY_TOKENS = 16;
/** Number of prompt characters that a model computes in one step, assumed before its time was measured. */
const CHARACTERS_OF_STEP = 400;

/**
 * Calls `choose` with the number of elements that a node takes efficiently at once: the batch that its program gives, else the measured number
 * of texts of its encoder, else `EFFICIENT_TEXTS`.
 */
export function chooseByBatch(node: Node, sizes: Sizes, choose: (batch: number) => number): number {
  const { each, operation } = node;
  if (each?.batch !== undefined) return choose(each.batch);
  if (operation.kind !== 'embedding' && operation.kind !== 'reranking') return choose(EFFICIENT_TEXTS);
  const perText = tokensPerText(node);
  return sizes.choose({ kind: operation.kind, model: operation.model }, (tokens) =>
    choose(tokens === undefined ? EFFICIENT_TEXTS : Math.max(1, Math.floor(tokens / perText))),
  );
}

/** Number of prompt characters that a model computes in one step. `tokens` is its efficient size, undefined before it is measured. */
export const charactersOfStep = (tokens: number | undefined): number =>
  tokens === undefined ? CHARACTERS_OF_STEP : tokens * CHARACTERS_OF_TOKEN;

/** Estimated tokens of an element: the mean of the known texts, plus the query of a reranker. */
function tokensPerText({ each, inputs }: Node): number {
  const lengths = lengthsIn(each && inputs[each.port]);
  const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  const text = lengths.length === 0 ? TEXT_TOKENS : mean / CHARACTERS_OF_TOKEN;
  return Math.max(1, text + queryTokens(inputs.query));
}

function queryTokens(query: Input | undefined): number {
  if (!query) return 0;
  const [length] = lengthsIn({ list: [query] });
  return length === undefined ? QUERY_TOKENS : length / CHARACTERS_OF_TOKEN;
}

/** Lengths of the known texts; texts that a node computes are left out. */
function lengthsIn(input: Input | undefined): number[] {
  if (!input || 'from' in input) return [];
  if ('list' in input) return input.list.flatMap((item) => lengthsIn(item));
  const values: readonly unknown[] = Array.isArray(input.value) ? input.value : [input.value];
  return values.flatMap((value) => (typeof value === 'string' ? [value.length] : []));
}
