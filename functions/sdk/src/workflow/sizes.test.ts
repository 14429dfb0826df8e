import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seeded } from '../../../../test/harness/random.ts';
import { randomGraph } from '../../testing/random-graph.ts';
import { TextEngine } from '../../testing/text-engine.ts';
import { Builder, prompt } from './builder.ts';
import { execute } from './execute.ts';
import type { Graph, Node, Ref } from './graph.ts';
import { optimise, PASSES, prefillingSplit, stageDecomposition } from './passes.ts';
import { workflowOn } from './program.ts';
import { askedOnce, type EfficientTokens, Sizes } from './sizes.ts';

const GRAPHS = process.env.PIE_TEST_ALL ? 1000 : 60;

/** Sizes by kind of engine. */
const measured =
  (sizes: Partial<Record<Parameters<EfficientTokens>[0]['kind'], number>>): EfficientTokens =>
  ({ kind }) =>
    sizes[kind];

/** Numbers of elements of the stages of a node. */
const stagesIn = (graph: Graph, id: string, port: string): number[] =>
  graph.nodes.filter((node) => node.id.startsWith(`${id}[`)).map((node) => countIn(node, port));

const countIn = ({ inputs }: Node, port: string): number => (inputs[port] as { value: string[] }).value.length;

/** Vectors of texts that are stored stage by stage. */
function stored(texts: readonly string[], batch?: number): Graph {
  const g = new Builder('stored');
  const vectors = g.embed(texts, { model: 'encoder', ...(batch !== undefined && { batch }) });
  const each = { port: 'vectors', batch: 64 };
  g.call('store', { vectors }, 'numbers', (given) => given.vectors.map(() => 0), { each });
  return g.graph({});
}

/** A prompt of 400 known characters, and a value that comes later. */
function asked(): Graph {
  const g = new Builder('asked');
  const found = g.call('fetch', {}, 'text', () => 'found', { kind: 'tool-call' });
  return g.graph({ answer: { from: g.generate(prompt`${'x'.repeat(400)}${found}`) } });
}

describe('efficient sizes', () => {
  it('make stages of as many texts as the encoder takes at once, 16 before it was measured', () => {
    // Each text has 40 characters, which count as ten tokens.
    const texts = Array.from({ length: 40 }, () => 'x'.repeat(40));
    const stages = (graph: Graph, embedding?: number) =>
      stagesIn(
        stageDecomposition.apply(graph, new Sizes(measured({ ...(embedding !== undefined && { embedding }) }))),
        'stored/embedding',
        'texts',
      );
    assert.deepEqual(stages(stored(texts)), [16, 16, 8]);
    assert.deepEqual(stages(stored(texts), 150), [15, 15, 10]);
    assert.deepEqual(stages(stored(texts), 1), new Array(40).fill(1));
    assert.deepEqual(stages(stored(texts), 400), []);
    assert.deepEqual(stages(stored(texts, 32), 150), [32, 8]);
  });

  it('count the query of a reranker with each document, and guess the length of texts that are not known', () => {
    const g = new Builder('ranked');
    const ask = g.argument('ask', 'text');
    const documents = Array.from({ length: 30 }, () => 'x'.repeat(40));
    const each = { port: 'scores', batch: 64 };
    const read = (scores: Ref<'numbers'>) =>
      g.call('read', { scores }, 'numbers', (given) => [...given.scores], { each });
    read(g.rerank('q'.repeat(40), documents));
    read(g.rerank(ask, documents));
    read(g.rerank('', [ask, ...documents.slice(1).map(() => ask)]));
    const graph = stageDecomposition.apply(g.graph({}), new Sizes(measured({ reranking: 260 })));
    const documentInputs = (id: string) =>
      graph.nodes.filter((node) => node.id.startsWith(`${id}[`)).map(({ inputs }) => inputs.documents);
    const counts = (id: string) =>
      documentInputs(id).map((input) => {
        if (!input || 'from' in input) return 0;
        return 'list' in input ? input.list.length : (input.value as string[]).length;
      });
    // 260 tokens are 13 times 10 for a document and 10 for the query.
    assert.deepEqual(counts('ranked/reranking'), [13, 13, 4]);
    // An unknown query counts as 16 tokens: 260 / (10 + 16) is 10.
    assert.deepEqual(counts('ranked/reranking-2'), [10, 10, 10]);
    // An unknown document counts as 64 tokens: 260 / 64 is 4.
    assert.deepEqual(counts('ranked/reranking-3'), [4, 4, 4, 4, 4, 4, 4, 2]);
  });

  it('split a prompt when the model can compute its early part before the rest comes', () => {
    const isSplit = (model?: number) =>
      prefillingSplit
        .apply(asked(), new Sizes(measured({ ...(model !== undefined && { model }) })))
        .nodes.some(({ operation }) => operation.kind === 'partial-prefilling');
    // The call takes four steps. An early part costs 2.5 in any case, so its tokens may take 1.5. For 400 characters (100 tokens), 67 a step suffice.
    assert.equal(isSplit(), true);
    assert.equal(isSplit(67), true);
    assert.equal(isSplit(66), false);
    assert.equal(isSplit(10), false);
    // The measured size of an encoder does not shorten the estimated wait: 160 vectors count as ten steps, one for each batch of 16.
    const g = new Builder('waits');
    const vectors = g.embed(Array.from({ length: 160 }, () => 'x'.repeat(40)));
    const found = g.call('find', { vectors }, 'text', () => 'found', { kind: 'searching' });
    const graph = g.graph({ answer: { from: g.generate(prompt`${'x'.repeat(400)}${found}`) } });
    const split = prefillingSplit.apply(graph, new Sizes(measured({ embedding: 100_000 })));
    assert.ok(split.nodes.some(({ operation }) => operation.kind === 'partial-prefilling'));
  });

  it('replace a plan only when they lead to other choices', async () => {
    const engine = new TextEngine();
    let made = 0;
    const app = workflowOn<{ texts: readonly string[] }>(
      engine,
      'planned',
      (g, { texts }) => {
        made++;
        const vectors = g.embed(texts);
        const each = { port: 'vectors', batch: 64 };
        return { sizes: g.call('sizes', { vectors }, 'numbers', (given) => given.vectors.map(() => 1), { each }) };
      },
      { plans: [{ texts: Array.from({ length: 20 }, () => 'x'.repeat(40)) }] },
    );
    const input = { texts: Array.from({ length: 20 }, () => 'x'.repeat(40)) };
    const stages = async () => {
      engine.ran.length = 0;
      await app.run(input);
      return engine.ran.filter((id) => id.startsWith('planned/embedding')).length;
    };
    // The texts have ten tokens each. A size of 161 or 169 tokens takes 16 of them at once.
    const seen: [size: number | undefined, stages: number, made: number][] = [];
    for (const size of [undefined, 161, 169, 200, 400, 161, 100]) {
      if (size !== undefined) engine.sizes.set('embedding ', size);
      seen.push([size, await stages(), made]);
    }
    assert.deepEqual(seen, [
      [undefined, 2, 1],
      // The plan of the build, which had no measurement, has stages of 16 texts, too.
      [161, 2, 1],
      [169, 2, 1],
      [200, 1, 2],
      // Batches of 20 and of 40 texts both take all 20 texts at once.
      [400, 1, 2],
      [161, 2, 2],
      [100, 2, 3],
    ]);
    assert.equal(app.plans?.count, 3);
  });

  it('keep the results of random graphs, and keep a plan only while they lead to the same graph', async () => {
    let [holding, changed] = [0, 0];
    for (let seed = 0; seed < GRAPHS; seed++) {
      const graph = randomGraph(seeded(seed));
      const below = seeded(seed + 1000);
      const random = () =>
        measured({ model: 2 ** below(10), embedding: 1 + below(2 ** below(11)), reranking: 1 + below(2 ** below(11)) });
      const expected = await execute(graph, { engine: new TextEngine(seed) });
      const [first, second] = [random(), random()];
      const sizes = new Sizes(first);
      const plan = optimise(graph, PASSES, sizes);
      assert.deepEqual(await execute(plan, { engine: new TextEngine(seed) }), expected, `seed ${seed}`);
      assert.ok(sizes.hold(first), `seed ${seed}`);
      const same = JSON.stringify(optimise(graph, PASSES, new Sizes(second))) === JSON.stringify(plan);
      if (sizes.hold(second)) assert.ok(same, `seed ${seed}`);
      if (sizes.hold(second)) holding++;
      if (!same) changed++;
    }
    assert.ok(holding > GRAPHS / 10 && changed > GRAPHS / 10, `${holding} held, ${changed} changed`);
  });

  it('are asked of the platform once', () => {
    const asks: string[] = [];
    const tokensOf = askedOnce(({ kind, model }) => {
      asks.push(`${kind} ${model}`);
      return kind === 'model' ? undefined : 8;
    });
    for (const model of [undefined, 'other', undefined]) {
      for (const kind of ['model', 'embedding'] as const)
        assert.equal(tokensOf({ kind, model }), kind === 'model' ? undefined : 8);
    }
    assert.deepEqual(asks, ['model undefined', 'embedding undefined', 'model other', 'embedding other']);
  });
});
