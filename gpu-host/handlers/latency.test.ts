import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { InferletOptions } from '../protocol/issuer.ts';
import { must, range, startTestHost } from '../testing/host.ts';
import { type Watched, watchBackend } from '../testing/wrapped-backend.ts';

/** Number of inputs per sequence of each step, when two prompts of 80 inputs and one of 40 with the targets `latency` arrive at once. */
async function stepsWith(latency: InferletOptions['latency']): Promise<number[][]> {
  let watched: Watched | undefined;
  await using host = await startTestHost({
    model: { maxBatchTokens: 80 },
    wrap: (inner) => {
      watched = watchBackend(inner);
      return watched.backend;
    },
  });
  const connection = await host.connect();
  const prefill = (id: string, tokens: number, arrival: number, options: Partial<InferletOptions> = {}) => {
    const inferlet = connection.openInferlet({ id, maxPages: 40, arrival, ...options });
    const queue = inferlet.createQueue('tiny');
    const pages = must(inferlet.allocatePages(queue, 10));
    const inputs = range(0, tokens).map((i) => (i * 7 + arrival) % 90);
    const request = { tokens: inputs, positions: range(0, tokens), inPages: pages, outPages: pages, mask: undefined };
    return inferlet.ask(queue, { op: 'step', request: { ...request, rows: 0, output: { tag: 'none' } } });
  };
  const outcomes = [
    prefill('a', 80, 1),
    prefill('b', 80, 2),
    prefill('live', 40, 3, latency === undefined ? {} : { latency }),
  ];
  for (const outcome of await Promise.all(outcomes)) must(outcome);
  return (watched?.batches ?? []).map((batch) => batch.map(({ positions }) => positions.length));
}

test('the latency targets of an inferlet apply to its calls', async () => {
  assert.deepEqual(await stepsWith(undefined), [[80], [80], [40]]);
  let first: number[] | undefined;
  // On a busy machine the first step may begin before all prompts have come.
  for (let tries = 0; tries < 5 && first?.length !== 2; tries++)
    [first] = await stepsWith({ firstTokenMs: 1, perTokenMs: 1 });
  assert.deepEqual(first, [40, 20], 'the prompt with targets in full, and a quarter of the step for the others');
});
