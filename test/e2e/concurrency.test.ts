import assert from 'node:assert/strict';
import { test } from 'node:test';
import { modelStats } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { assertBatched, deployFunction, functionsPlatform } from '#test/harness/functions.ts';

const CLIENTS = 32;
const STARTS = ['Once upon a time', 'The dog', 'Lily', 'One day', 'Tom and', 'In the park', 'A small bird', 'The sun'];

test('assertBatched fails without sequences and for sequences that share no batch', async () => {
  // `batchSizes` has the number of batches by their size.
  for (const batchSizes of [[], [0, 10]]) await assert.rejects(assertBatched({ batchSizes }), /shared a batch/);
  await assertBatched({ batchSizes: [0, 9, 1] });
});

test('32 concurrent invocations share batches and return the texts of 32 sequential ones', async () => {
  const platform = await functionsPlatform();
  await deployFunction('text-completion');
  const inputs = Array.from({ length: CLIENTS }, (_, i) => ({
    // The repeated "and" makes each use of a start another prompt.
    prompt: `${STARTS[i % STARTS.length]}${' and'.repeat(Math.floor(i / STARTS.length))}`,
    maxTokens: 32,
    temperature: 0,
  }));
  const run = async (input: object) =>
    terminal(await invoke(platform, 'text-completion', input))?.data.output.text as string;
  const alone: string[] = [];
  for (const input of inputs) alone.push(await run(input));
  await modelStats(platform, { reset: true });
  assert.deepEqual(await Promise.all(inputs.map(run)), alone);
  await assertBatched(await modelStats(platform));
});
