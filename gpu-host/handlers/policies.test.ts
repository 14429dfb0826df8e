import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BatchPolicy, departureOf } from '../batcher/testing/policies.ts';
import { bySteps, byThreeCalls } from '../testing/decoding.ts';
import { Oracle, startTestHost, tagOf } from '../testing/host.ts';
import { PROMPT } from '../testing/workbench.ts';

const POLICIES: readonly BatchPolicy[] = [
  { kind: 'adaptive' },
  { kind: 'eager' },
  { kind: 'k-only', calls: 3, maxWaitMs: 6 },
  { kind: 't-only', intervalMs: 4 },
  { kind: 'rate', maxWaitMs: 6 },
];

for (const batchPolicy of POLICIES) {
  test(`${batchPolicy.kind}: the policy changes the times of batches but no text`, async () => {
    await using host = await startTestHost({ model: { departure: () => departureOf(batchPolicy) } });
    const oracle = await Oracle.of(host.model);
    const connection = await host.connect();
    const expected = await oracle.greedy(PROMPT, 10);
    const texts = await Promise.all(
      [bySteps, byThreeCalls, bySteps, byThreeCalls].map(async (decode, i) => {
        const inferlet = connection.openInferlet({ id: `${i}`, maxPages: 8, arrival: i });
        const text = await decode({ inferlet, queue: inferlet.createQueue('tiny') }, PROMPT, 10, async () => {});
        await inferlet.close();
        return text.tokens;
      }),
    );
    for (const tokens of texts) assert.deepEqual(tokens, expected);
    const { meanBatchSize } = host.host.stats().models[0]!;
    // This policy sends each call alone.
    if (batchPolicy.kind === 'eager') assert.equal(meanBatchSize, 1);
  });
}

test('an inferlet that ends while its call waits for a batch frees its memory', async () => {
  await using host = await startTestHost({
    model: { departure: () => departureOf({ kind: 't-only', intervalMs: 50 }) },
  });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'x', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const said = bySteps({ inferlet, queue }, PROMPT, 10, async () => {}).catch((error: unknown) => error);
  const pending = inferlet.synchronize(queue);
  await inferlet.close();
  assert.equal(tagOf(await pending), 'cancelled');
  assert.ok((await said) instanceof Error);
  assert.equal(host.host.stats().models[0]!.pages.owned, 0);
});
