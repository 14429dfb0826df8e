import { Builder, prompt } from '../src/workflow/builder.ts';
import type { Graph, Ref } from '../src/workflow/graph.ts';

/** A random whole number from 0 to `below` − 1. */
type Below = (below: number) => number;

/** Values that a random program has made so far. */
interface Made {
  readonly texts: Ref<'text'>[];
  readonly lists: Ref<'texts'>[];
  readonly contexts: Ref<'context'>[];
  readonly numbers: Ref<'numbers'>[];
  readonly vectors: Ref<'vectors'>[];
}

const LONG = 'A text that is long enough to be worth a device call of its own. ';

/** A random workflow of components over all primitives. Equal random numbers give equal workflows. */
export function randomGraph(below: Below): Graph {
  const g = new Builder('random');
  const made: Made = { texts: [], lists: [], contexts: [], numbers: [], vectors: [] };
  const components = 1 + below(5);
  for (let i = 0; i < components; i++) {
    const make = () => {
      for (let steps = 1 + below(4); steps > 0; steps--) step(g, made, below, 2);
    };
    g.component(`part${i}`, make, { ordered: below(6) === 0 });
  }
  const { texts, lists, numbers, vectors } = made;
  const results = [...texts, ...lists, ...numbers, ...vectors].filter(() => below(2) === 0).slice(0, 6);
  return g.graph(Object.fromEntries(results.map((from, i) => [`result${i}`, { from }])));
}

function step(g: Builder, made: Made, below: Below, depth: number): void {
  const pick = <T>(list: readonly T[]): T | undefined => list[below(list.length)];
  const word = () => pick(['one', 'two', LONG, 'four']) ?? '';
  const text = () => (below(3) > 0 ? pick(made.texts) : undefined) ?? word();
  const context = () => pick(made.contexts) ?? g.prefill(prompt`${LONG}${text()}`);
  const slow = (of: Ref<'text'> | string) =>
    g.call('fetch', { of }, 'text', (given) => `${given.of}.`, { kind: 'tool-call' });
  const list = () => pick(made.lists) ?? Array.from({ length: 1 + below(40) }, (_, i) => `${word()}${i}`);
  switch (below(15)) {
    case 0:
    case 1: {
      const from = below(2) === 0 ? pick(made.contexts) : undefined;
      made.contexts.push(
        g.prefill(prompt`${LONG}${below(2) === 0 ? text() : slow(text())}${word()}${text()}`, {
          ...(from && { context: from }),
        }),
      );
      return;
    }
    case 2:
    case 3: {
      const decoded = g.decode(context(), { maxTokens: 1 + below(12) });
      made.texts.push(decoded.text);
      made.contexts.push(decoded.context);
      return;
    }
    case 4:
    case 5: {
      const items = g.items(context(), { by: 'sentence', count: 1 + below(4) }, { maxTokens: 20 });
      made.texts.push(...items);
      made.vectors.push(g.embed(items, below(4) === 0 ? {} : { batch: 1 + below(3) }));
      return;
    }
    case 6:
      made.vectors.push(g.embed(list(), below(2) === 0 ? {} : { batch: 1 + below(16) }));
      return;
    case 7:
      made.numbers.push(g.rerank(text(), list(), below(2) === 0 ? {} : { batch: 1 + below(16) }));
      return;
    case 8: {
      const each = { port: 'texts', batch: 1 + below(8) };
      const texts = below(2) === 0 ? list() : [text(), text(), text()];
      made.lists.push(g.call('mark', { texts }, 'texts', (given) => given.texts.map((one) => `${one}!`), { each }));
      return;
    }
    case 9:
      made.texts.push(g.call('length', { of: list() }, 'text', ({ of }) => of.join('').slice(0, 40)));
      return;
    case 10: {
      const chosen = g.select(context(), ['yes', 'no']);
      made.texts.push(chosen.text);
      made.contexts.push(chosen.context);
      return;
    }
    case 11:
      made.contexts.push(below(2) === 0 ? g.fork(context()) : g.join(context(), [context()]));
      return;
    case 12: {
      if (depth === 0) return;
      const test = g.call('test', { text: text() }, 'flag', (given) => given.text.length % 2 === 0);
      const branch = () => {
        const inner: Made = copyOf(made);
        step(g, inner, below, depth - 1);
        return g.generate(prompt`${LONG}${inner.texts.at(-1) ?? 'none'}`, { maxTokens: 4 });
      };
      made.texts.push(g.condition(test, branch, branch));
      return;
    }
    case 13: {
      const contexts = [context(), context(), context()];
      const by = below(3);
      const places = g.call('places', { of: text() }, 'numbers', ({ of }) => [of.length % 3, (of.length + by) % 3]);
      made.contexts.push(...g.pick(contexts, places, 1 + below(2)));
      return;
    }
    default: {
      const start = pick(made.texts);
      if (!start) {
        made.contexts.push(g.cached('saved'));
        return;
      }
      const state = { text: start, context: context() };
      const ended = g.loop(state, 1 + below(3), (inner, given) => {
        const decoded = inner.decode(inner.prefill(prompt`${given.text}${text()}`, given), { maxTokens: 3 });
        const done = inner.call('done', { text: decoded.text }, 'flag', (now) => now.text.includes('.'));
        return { ...decoded, done };
      });
      made.texts.push(ended.text);
      made.contexts.push(ended.context);
    }
  }
}

const copyOf = ({ texts, lists, contexts, numbers, vectors }: Made): Made => ({
  texts: [...texts],
  lists: [...lists],
  contexts: [...contexts],
  numbers: [...numbers],
  vectors: [...vectors],
});
