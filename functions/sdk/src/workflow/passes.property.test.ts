import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seeded } from '../../../../test/harness/random.ts';
import { randomGraph } from '../../testing/random-graph.ts';
import { TextEngine } from '../../testing/text-engine.ts';
import { execute } from './execute.ts';
import { optimise, PASSES } from './passes.ts';
import { validate } from './validate.ts';

const GRAPHS = process.env.PIE_TEST_ALL ? 3000 : 30;

describe('passes on random graphs', () => {
  it('keep the results, do not change the graph that they get, and leave no context, in every combination', async () => {
    let changed = 0;
    for (let seed = 0; seed < GRAPHS; seed++) {
      const graph = randomGraph(seeded(seed));
      validate(graph);
      const before = JSON.stringify(graph);
      const expected = await resultsOf(graph, seed);
      for (let chosen = 1; chosen < 2 ** PASSES.length; chosen++) {
        // Bit i of `chosen` selects pass i.
        const passes = PASSES.filter((_, i) => chosen & (2 ** i));
        const optimised = optimise(graph, passes);
        validate(optimised);
        const names = passes.map(({ name }) => name).join(', ');
        assert.deepEqual(await resultsOf(optimised, seed + chosen), expected, `seed ${seed}: ${names}`);
        if (JSON.stringify(optimised) !== before) changed++;
      }
      assert.equal(JSON.stringify(graph), before, `seed ${seed}`);
    }
    // On average, more than 20 of the 63 combinations of passes must change a graph. Otherwise the test would prove little.
    assert.ok(changed > GRAPHS * 20, `${changed} graphs changed`);
  });
});

async function resultsOf(graph: Parameters<typeof execute>[0], seed: number): Promise<unknown> {
  const engine = new TextEngine(seed);
  const results = await execute(graph, { engine, concurrency: 1 + (seed % 9) });
  assert.equal(engine.live.size, 0, `seed ${seed}: contexts are left`);
  return results;
}
