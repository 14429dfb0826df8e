import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TextEngine } from '../../testing/text-engine.ts';
import { Builder, type Prompt, prompt } from './builder.ts';
import { drawSvg, drawText } from './draw.ts';
import type { NodeRun, NodeValues } from './engine.ts';
import { execute, type NodeEvent } from './execute.ts';
import type { Graph, Node, Ref } from './graph.ts';
import {
  contextPrefetch,
  decodingPipelining,
  dependencyPruning,
  optimise,
  type Pass,
  prefillingSplit,
  stageDecomposition,
  topologyBatching,
} from './passes.ts';
import { validate } from './validate.ts';

const LONG = 'Answer the question from the passages. ';

/** A text that comes over the network, so that its reader waits for four assumed steps of a model. */
const slow = (g: Builder, from: Ref<'text'> | string): Ref<'text'> =>
  g.call('fetch', { from }, 'text', (given) => given.from, { kind: 'tool-call' });

/** Expands a question, embeds the expansions, and answers from what a search finds, over the network if it is `slow`. */
function rag({ batch, slow: isSlow = false }: { readonly batch?: number; readonly slow?: boolean } = {}): Graph {
  const g = new Builder('rag');
  const queries = g.component('expansion', () =>
    g.items(g.prefill('Other words: '), { by: 'line', count: 3 }, { maxTokens: 20 }),
  );
  const found = g.component('search', () =>
    g.call(
      'find',
      { vectors: g.embed(queries, batch === undefined ? {} : { batch }) },
      'text',
      ({ vectors }) => `${vectors.length} found`,
      {
        kind: isSlow ? 'tool-call' : 'searching',
      },
    ),
  );
  const answer = g.component('answer', () => g.generate(prompt`${LONG}${found}\nAnswer:`, { maxTokens: 8 }));
  return g.graph({ answer: { from: answer } });
}

/** The node; `reads` counts the reads of its `inputs` and `id`. */
const watched = (of: Node, reads: { count: number }): Node =>
  new Proxy(of, {
    get(target, name) {
      if (name === 'inputs' || name === 'id') reads.count++;
      return Reflect.get(target, name);
    },
  });

const kinds = (graph: Graph) => graph.nodes.map(({ operation }) => operation.kind);
const node = (graph: Graph, id: string): Node => graph.nodes.find((each) => each.id === id)!;

describe('passes', () => {
  it('remove the order of components, except that of side effects', () => {
    const g = new Builder('pruned');
    g.component('a', () => g.prefill('a'));
    g.component('b', () => g.prefill('b'));
    g.component('c', () => g.prefill('c'), { ordered: true });
    const after = dependencyPruning.apply(g.graph({})).nodes.map((each) => each.after);
    assert.deepEqual(after, [[], [], ['a', 'b']]);
  });

  it('keep side effects in order, also across components without side effects', async () => {
    const g = new Builder('effects');
    const ends: string[] = [];
    const effect = (name: string, turns: number) => () =>
      g.call(name, {}, 'text', async () => {
        for (let turn = 0; turn < turns; turn++) await undefined;
        ends.push(name);
        return name;
      });
    g.component('a', effect('a', 20), { ordered: true });
    g.component('free', effect('free', 0));
    g.component('nodeless', () => g.argument('given', 'text'));
    g.component('b', effect('b', 0), { ordered: true });
    for (const passes of [[], undefined]) {
      await execute(optimise(g.graph({}), passes), { engine: new TextEngine(), given: { given: '' } });
      assert.deepEqual(
        ends.splice(0).filter((name) => name !== 'free'),
        ['a', 'b'],
      );
    }
  });

  it('send the client one text after another, also from within loops', async () => {
    const g = new Builder('piped');
    const outside = g.generate('Before', { pipe: true });
    const first = g.component('first', () => g.generate('One', { pipe: true }));
    g.component('quiet', () => g.generate('Two'));
    g.component('rounds', () =>
      g.loop({ text: first }, 2, (inner, { text }) => {
        const next = inner.generate(prompt`${text}`, { pipe: true });
        return { text: next, done: inner.call('done', { next }, 'flag', () => false) };
      }),
    );
    g.component('last', () => g.generate('Three', { pipe: true }));
    g.call('end', { outside, first }, 'text', () => 'end');
    const after = new Map(optimise(g.graph({})).nodes.map((each) => [each.id, each.after]));
    assert.deepEqual(after.get('first/decoding'), []);
    assert.deepEqual(after.get('quiet/decoding'), []);
    assert.deepEqual(after.get('rounds/loop'), ['first']);
    assert.deepEqual(after.get('last/decoding'), ['first', 'rounds']);
    assert.deepEqual(after.get('last/prefilling'), []);
    await execute(optimise(g.graph({})), { engine: new TextEngine() });
  });

  it('hand items on as they complete, and split nodes that treat them one by one', async () => {
    const graph = decodingPipelining.apply(rag({ batch: 1 }));
    assert.deepEqual(
      graph.nodes.map(({ id }) => id),
      [
        'expansion/prefilling',
        'expansion/decoding',
        ...[0, 1, 2].map((i) => `search/embedding[${i}]`),
        'search/embedding',
        'search/find',
        'answer/prefilling',
        'answer/decoding',
      ],
    );
    assert.equal(node(graph, 'expansion/decoding').operation.kind, 'partial-decoding');
    assert.equal(node(graph, 'search/embedding').operation.kind, 'aggregate');
    // The first item is embedded before the last one is generated.
    const seen: string[] = [];
    await execute(graph, { engine: new TextEngine(), onNode: (event) => seen.push(`${event.node.id} ${event.what}`) });
    assert.ok(seen.indexOf('search/embedding[0] started') < seen.indexOf('expansion/decoding ended'), `${seen}`);
  });

  it('rank the documents found for one item before the generation of all items ends', async () => {
    const g = new Builder('ranked');
    const items = g.items(g.prefill('Other words: '), { by: 'sentence', count: 2 }, { maxTokens: 40 });
    const vectors = g.embed(['known', ...items], { batch: 1 });
    const find = (given: { vectors: readonly Float32Array[] }) => given.vectors.map((vector) => [`${vector[0]}`, 'b']);
    const lists = g.call('find', { vectors }, 'list', find, { kind: 'searching', each: { port: 'vectors', batch: 1 } });
    const scores = g.rerankEach('query', lists);
    const plain = g.graph({ lists: { from: lists }, scores: { from: scores } });
    const results = await execute(plain, { engine: new TextEngine() });
    const seen: string[] = [];
    const graph = decodingPipelining.apply(plain);
    const onNode = (event: NodeEvent) => seen.push(`${event.node.id} ${event.what}`);
    assert.deepEqual(await execute(graph, { engine: new TextEngine(), onNode }), results);
    assert.deepEqual(
      (results.scores as number[][]).map(({ length }) => length),
      [2, 2, 2],
    );
    assert.ok(seen.indexOf('ranked/reranking[1] started') < seen.indexOf('ranked/decoding ended'), `${seen}`);
  });

  it('leave items together that one efficient batch takes at once', () => {
    const whole = rag();
    assert.equal(decodingPipelining.apply(whole), whole);
    const sizes = (batch: number) =>
      decodingPipelining
        .apply(rag({ batch }))
        .nodes.filter(({ id }) => id.startsWith('search/embedding['))
        .map(({ inputs }) => (inputs.texts as { list: [] }).list.length);
    assert.deepEqual([sizes(2), sizes(3)], [[2, 1], []]);
    // A reader of the first item alone need not wait for the second, so the generation hands its items on.
    const g = new Builder('one');
    const [first, second] = g.items(g.prefill('Names: '), { by: 'line', count: 2 });
    g.generate(prompt`${first ?? ''}`);
    g.call('both', { names: [first, second] }, 'text', ({ names }) => names.join());
    assert.equal(decodingPipelining.apply(g.graph({})).nodes[1]?.operation.kind, 'partial-decoding');
  });

  it('run many elements in stages, one for each stage of the next node', () => {
    const g = new Builder('stages');
    const texts = Array.from({ length: 40 }, (_, i) => `text ${i}`);
    const vectors = g.embed(texts, { batch: 16 });
    const each = { port: 'vectors', batch: 16 };
    const sizes = g.call('store', { vectors }, 'numbers', (given) => given.vectors.map((vector) => vector.length), {
      each,
    });
    const alone = g.embed(texts);
    const graph = stageDecomposition.apply(g.graph({ sizes: { from: sizes }, alone: { from: alone } }));
    const stages = graph.nodes.filter(({ id }) => id.startsWith('stages/embedding['));
    assert.deepEqual(
      stages.map(({ inputs }) => (inputs.texts as { value: string[] }).value.length),
      [16, 16, 8],
    );
    assert.equal(graph.nodes.filter(({ id }) => id.startsWith('stages/store[')).length, 3);
    // Only stages read the vectors, so no node joins them. No node treats the vectors of `alone` one by one, so `alone` stays whole.
    assert.ok(!graph.nodes.some(({ id }) => id === 'stages/embedding'));
    assert.equal(node(graph, 'stages/embedding-2').operation.kind, 'embedding');
  });

  it('give no node the id of another one', async () => {
    const g = new Builder('same');
    const given = [0, 1].map((index) => g.argument('docs', 'text', index));
    const shout = (docs: readonly unknown[]) => docs.map((each) => `${each}!`);
    const docs = g.call('docs', { list: given }, 'texts', ({ list }) => shout(list), {
      each: { port: 'list', batch: 1 },
    });
    for (const name of ['again', 'again', 'again-2']) g.call(name, {}, 'text', () => name);
    const graph = g.graph({ docs: { from: docs } });
    validate(graph);
    const options = { engine: new TextEngine(), given: { docs: ['a', 'b'] } };
    assert.deepEqual(await execute(optimise(graph), options), await execute(graph, options));
    validate(optimise(graph));
  });

  it('split a prompt before the part that comes later, and only there', () => {
    const graph = prefillingSplit.apply(rag({ slow: true }));
    const [early, late] = [node(graph, 'answer/prefilling<0'), node(graph, 'answer/prefilling')];
    assert.equal(early.operation.kind, 'partial-prefilling');
    // The early part waits for the expansion's last item, and is computed while the model would wait for the search.
    const idle = { list: [{ from: { node: 'expansion/decoding', port: 'item2', type: 'text' } }] };
    assert.deepEqual(early.inputs, { parts: { list: [{ value: LONG }] }, idle });
    assert.deepEqual(early.after, []);
    assert.deepEqual(late.inputs.context, { from: { node: 'answer/prefilling<0', port: 'context', type: 'context' } });
    assert.equal(graph.nodes.length, rag().nodes.length + 1);
    // Without `slow`, the wait is too short: embedding a few texts takes half an assumed step, and an early part 2.5.
    const whole = rag();
    assert.deepEqual(prefillingSplit.apply(whole), whole);
  });

  it('leave a prompt whole when its early part or its wait is short, or when only its own model works meanwhile', () => {
    const g = new Builder('whole');
    const title = g.call('title', { words: ['a'] }, 'text', () => 'x', { kind: 'aggregate' });
    const [one, other] = [g.generate('x'), g.generate('y')];
    g.prefill(prompt`${LONG}${title}${LONG}`);
    g.prefill(prompt`${'short '}${slow(g, 'a')}`);
    g.prefill(prompt`${one}${LONG}${other}`);
    g.prefill(prompt`${LONG}${g.select(g.prefill('a'), ['b', 'c']).text}`);
    g.prefill(prompt`${LONG}${g.generate('x', { model: 'proxy' })}`, { model: 'proxy' });
    const whole = g.graph({});
    assert.deepEqual(prefillingSplit.apply(whole).nodes, whole.nodes);
  });

  it('split a prompt while another model generates, or many texts are embedded', () => {
    const splits = (make: (g: Builder) => Prompt) => {
      const g = new Builder('split');
      g.prefill(make(g));
      return kinds(prefillingSplit.apply(g.graph({}))).filter((kind) => kind === 'partial-prefilling').length;
    };
    const embedded = (g: Builder, count: number) =>
      g.call('name', { vectors: g.embed(new Array(count).fill('a')) }, 'text', () => 'x', { kind: 'searching' });
    assert.equal(
      splits((g) => prompt`${LONG}${g.generate('x', { model: 'proxy' })}`),
      1,
    );
    // The value of an argument may be long, so it counts as long enough.
    assert.equal(
      splits((g) => prompt`${g.argument('document', 'text')}${slow(g, 'x')}`),
      1,
    );
    // 48 texts are three batches of 16, so their wait of three steps is long enough for an early part. 32 texts take two steps.
    assert.equal(
      splits((g) => prompt`${LONG}${embedded(g, 48)}`),
      1,
    );
    assert.equal(
      splits((g) => prompt`${LONG}${embedded(g, 32)}`),
      0,
    );
  });

  it('split a prompt once for each value that comes later than the others', () => {
    const g = new Builder('twice');
    const first = slow(g, 'x');
    // A fetch takes 4 steps. The 560 characters take 2.5 + 560 / 400 = 3.9 steps, so they fit into the first wait. Together with the texts up to the
    // second fetch, they would not fit into the second wait.
    const third = g.prefill(prompt`${'x'.repeat(560)}${first}${LONG}${first}${LONG}${slow(g, first)}${LONG}`);
    const graph = prefillingSplit.apply(g.graph({ text: { from: g.decode(third).text } }));
    assert.deepEqual(
      graph.nodes
        .filter(({ id }) => id.startsWith('twice/prefilling'))
        .map(({ inputs }) => (inputs.parts as { list: [] }).list.length),
      [1, 4, 2],
    );
  });

  it('read no generation of a branch outside of that branch', () => {
    const g = new Builder('branches');
    const test = g.call('test', {}, 'flag', () => true);
    const found = () => slow(g, g.generate('x'));
    g.prefill(prompt`${LONG}${g.condition(test, found, found)}`);
    g.condition(
      test,
      () => g.generate(prompt`${LONG}${found()}`),
      () => g.generate('y'),
    );
    const graph = prefillingSplit.apply(g.graph({}));
    validate(graph);
    assert.deepEqual(
      graph.nodes.filter(({ operation }) => operation.kind === 'partial-prefilling').map(({ when }) => when.length),
      [1],
    );
  });

  it('bring a saved context to the device while other nodes run', () => {
    const g = new Builder('saved');
    g.cached('now');
    g.component('first', () => g.prefill('x'));
    g.component('second', () => g.cached('rules'));
    const graph = contextPrefetch.apply(g.graph({}));
    assert.deepEqual(kinds(graph), ['cached-context', 'prefilling', 'prefetching', 'cached-context']);
    assert.deepEqual(node(graph, 'second/cached-context:prefetch').after, []);
  });

  it('do not fail when only the prefetch of a saved context fails', async () => {
    class Failing extends TextEngine {
      override async run(node: Node, ...rest: [NodeValues, NodeRun]): Promise<NodeValues> {
        if (node.operation.kind === 'prefetching') throw new Error('too many');
        return super.run(node, ...rest);
      }
    }
    const g = new Builder('unlucky');
    const test = g.call('test', {}, 'flag', () => false);
    const other = () => g.call('other', {}, 'text', () => 'other');
    const text = g.condition(test, () => g.decode(g.cached('rules')).text, other);
    const graph = contextPrefetch.apply(g.graph({ text: { from: text } }));
    assert.ok(kinds(graph).includes('prefetching'));
    assert.deepEqual(await execute(graph, { engine: new Failing() }), { text: 'other' });
  });

  it('give each node its depth: its number of nodes to the end, of which a generation counts as eight', () => {
    assert.deepEqual(
      topologyBatching.apply(rag()).nodes.map(({ operation, depth }) => [operation.kind, depth]),
      [
        ['prefilling', 20],
        ['decoding', 19],
        ['embedding', 11],
        ['searching', 10],
        ['prefilling', 9],
        ['decoding', 8],
      ],
    );
  });

  it('that users write are applied, and the graphs that they return are checked', () => {
    const rename: Pass = { name: 'rename', apply: (graph) => ({ ...graph, name: 'renamed' }) };
    const breaks: Pass = { name: 'breaks', apply: (graph) => ({ ...graph, nodes: graph.nodes.slice(1) }) };
    assert.equal(optimise(rag(), [dependencyPruning, rename]).name, 'renamed');
    assert.throws(() => optimise(rag(), [breaks]), /The workflow "rag" cannot run/);
    const wrong: readonly [made: (graph: Graph) => unknown, shown: string][] = [
      [() => undefined, 'undefined'],
      [async (graph) => graph, 'a promise'],
      [({ nodes }) => nodes, 'a list'],
      [(graph) => ({ ...graph, nodes: graph.nodes.map(({ id }) => ({ id })) }), 'object'],
      [(graph) => ({ ...graph, nodes: graph.nodes.map((node) => ({ ...node, inputs: { text: null } })) }), 'object'],
      [(graph) => ({ ...graph, nodes: graph.nodes.map((node) => ({ ...node, when: [null] })) }), 'object'],
      [(graph) => ({ ...graph, nodes: Object.assign([], { 1: graph.nodes[0] }) }), 'object'],
      [(graph) => ({ ...graph, outputs: { ...graph.outputs, more: { list: [null] } } }), 'object'],
    ];
    for (const [apply, shown] of wrong) {
      const pass = { name: 'mine', apply: apply as Pass['apply'] };
      const text = new RegExp(`The pass "mine" must return a graph: .* It returned ${shown}\\.`);
      assert.throws(() => optimise(rag(), [pass, dependencyPruning]), text);
    }
    const loses: Pass = { name: 'loses', apply: (graph) => ({ ...graph, outputs: {} }) };
    const lost = /The pass "loses" must keep the results of "rag": answer. Its graph gives: none\./;
    assert.throws(() => optimise(rag(), [loses, dependencyPruning]), lost);
  });

  it('read each node only a few times, however long the graph is', () => {
    const g = new Builder('long');
    const count = 3000;
    let text: Ref<'text'> | string = 'a';
    for (let i = 0; i < count; i++) {
      const from: Ref<'text'> | string = text;
      [text = ''] = g.component(`part ${i}`, () => g.items(g.prefill(prompt`${from}`), { by: 'line', count: 2 }));
    }
    const graph = g.graph({ text: { from: text as Ref<'text'> } });
    // Each component waits only for the one before it, which in turn waits for all earlier ones.
    assert.equal(
      graph.nodes.reduce((sum, { after }) => sum + after.length, 0),
      2 * (count - 1),
    );
    const reads = { count: 0 };
    const optimised = decodingPipelining.apply({ ...graph, nodes: graph.nodes.map((each) => watched(each, reads)) });
    assert.equal(optimised.nodes.filter(({ operation }) => operation.kind === 'partial-decoding').length, count - 1);
    assert.ok(reads.count < 20 * graph.nodes.length, `${reads.count} reads of ${graph.nodes.length} nodes`);
    reads.count = 0;
    validate({ ...graph, nodes: graph.nodes.map((each) => watched(each, reads)) });
    assert.ok(reads.count < 30 * graph.nodes.length, `${reads.count} reads of ${graph.nodes.length} nodes`);
  });

  it('are applied within loops', () => {
    const g = new Builder('outer');
    const start = g.generate('x');
    const { text } = g.loop({ text: start }, 2, (inner, state) => {
      const next = inner.generate(prompt`${LONG}${slow(inner, state.text)}`);
      return { text: next, done: inner.call('done', {}, 'flag', () => true) };
    });
    const { operation } = node(optimise(g.graph({ text: { from: text } })), 'outer/loop');
    assert.ok(operation.kind === 'loop' && kinds(operation.body).includes('partial-prefilling'));
  });
});

describe('drawings', () => {
  it('show each node with what it reads', () => {
    const text = drawText(rag());
    assert.match(text, /^rag: 6 nodes\nexpansion\n {2}expansion\/prefilling +prefilling +parts: \["Other words: "\]\n/);
    assert.match(text, /\nanswer \(after search\)\n/);
    assert.match(text, /\nresult answer: answer\/decoding\.text$/);
    const lists = new Builder('lists');
    for (const texts of [[], ['one'], ['one', 'two']]) lists.embed(texts);
    const counts = [...drawText(lists.graph({})).matchAll(/texts: (.*)/g)].map(([, count]) => count);
    assert.deepEqual(counts, ['0 values', '1 value', '2 values']);
    const svg = drawSvg([
      { title: 'before', graph: rag() },
      { title: 'after <all>', graph: optimise(rag()) },
    ]);
    assert.equal(svg.match(/<rect x=/g)?.length, rag().nodes.length + optimise(rag()).nodes.length);
    assert.match(svg, /after &lt;all&gt;/);
  });
});
