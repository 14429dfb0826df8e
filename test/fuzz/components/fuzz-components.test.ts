import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '../../harness/random.ts';
import { fuzzComponents } from './fuzz-components.ts';
import { mutant } from './mutate.ts';
import { readSeeds } from './seeds.ts';

const MODULES = Number(process.env.PIE_FUZZ_MODULES ?? (process.env.PIE_TEST_ALL ? 150 : 50));
const SEED = Number(process.env.PIE_FUZZ_SEED ?? 1);

test('equal seeds and indexes make equal mutants', async () => {
  const seeds = await readSeeds();
  for (let index = 0; index < 40; index++) {
    const [one, same] = [mutant(seeds, Random.of(SEED, index)), mutant(seeds, Random.of(SEED, index))];
    assert.deepEqual(one, same);
  }
});

test('mutated components end with a code of the platform', async (context) => {
  context.diagnostic(`again: PIE_FUZZ_SEED=${SEED} PIE_FUZZ_MODULES=${MODULES}`);
  const report = await fuzzComponents({ modules: MODULES, seed: SEED, endToEnd: 0 });
  context.diagnostic(JSON.stringify(report.ends));
  assert.deepEqual(report.findings, []);
  for (const end of ['build build-failed', 'run result', 'run trap']) {
    assert.ok((report.ends[end] ?? 0) > 0, `no mutant ended with ${end}`);
  }
});
