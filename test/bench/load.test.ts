import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { randomFrom } from '../harness/random.ts';
import { poisson, sendAt, shareGptLengths } from './load.ts';
import { mean } from './statistics.ts';

describe('load', () => {
  it('arrives as a Poisson process: the gaps are exponential with the given rate, and equal for equal seeds', () => {
    const times = [...poisson(50, randomFrom(1)).take(20_000)];
    const gaps = times.map((atMs, i) => atMs - (times[i - 1] ?? 0));
    const meanMs = 1000 / 50;
    assert.ok(Math.abs(mean(gaps) - meanMs) < 0.5, `${mean(gaps)}`);
    // The standard deviation of an exponential distribution is its mean.
    const deviation = Math.sqrt(mean(gaps.map((gap) => (gap - meanMs) ** 2)));
    assert.ok(Math.abs(deviation - meanMs) < 0.5, `${deviation}`);
    assert.deepEqual([...poisson(50, randomFrom(1)).take(5)], times.slice(0, 5));
  });

  it("has lengths that fit the context, with ShareGPT's means scaled to the context", () => {
    const random = randomFrom(2);
    const lengths = Array.from({ length: 20_000 }, () => shareGptLengths(256, random));
    for (const { prompt, output } of lengths)
      assert.ok(prompt >= 4 && prompt <= 128 && output >= 2 && prompt + output <= 256);
    // 256 tokens are an eighth of ShareGPT's context, and an eighth of the published means is 20.2 and 42.2. Cutting the longest lowers the means.
    const [prompt, output] = [mean(lengths.map((one) => one.prompt)), mean(lengths.map((one) => one.output))];
    assert.ok(prompt > 19 && prompt < 20.5, `${prompt}`);
    assert.ok(output > 39 && output < 42.5, `${output}`);
  });

  it('sends requests while earlier ones are open, and none after a failure', async () => {
    const first = Promise.withResolvers<number>();
    const sending = sendAt([0, 1, 2], async (i) => (i === 0 ? first.promise : i));
    // The first request ends only after the others have been sent.
    const released = sendAt([5], async () => first.resolve(0));
    assert.deepEqual(await sending.allResults(), [0, 1, 2]);
    await released.allResults();

    const failing = sendAt([0, 0, 60_000], async (i) => {
      if (i === 1) throw new Error('refused');
      return i;
    });
    await assert.rejects(failing.allResults(), /refused/);
    assert.equal(failing.sent, 2);
  });
});
