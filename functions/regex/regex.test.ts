import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { call } from '#test/harness/deploy.ts';
import { callFunction, deployFrom, failingFunction, functionsPlatform } from '#test/harness/functions.ts';
import { ROOT } from '#test/harness/platform.ts';

const PATTERNS = [
  '[0-9]{3}-[0-9]{4}',
  '(cat|dog|bird)s?( and (cat|dog|bird)s?){0,2}\\.',
  '[A-Z][a-z]{1,8} is [0-9]{1,2}',
  '\\w{3,6}@\\w{2,5}\\.(com|org)',
  '[äöü]{2}🦊?',
];

const DRAWS = 400;

describe('regex', () => {
  it('answers with a text that matches the pattern', async () => {
    for (const [seed, pattern] of PATTERNS.entries()) {
      const answers = await Promise.all(
        [0, 1, 2, 3].map((i) => callFunction('regex', { pattern, prompt: 'It is ', seed: seed * 10 + i })),
      );
      for (const { output } of answers) {
        assert.match(output.text, new RegExp(`^(?:${pattern})$`, 'u'));
        assert.ok(['constraint', 'stop-token'].includes(output.finishReason), output.finishReason);
      }
    }
  });

  it("keeps the model's distribution among the allowed tokens", async () => {
    const platform = await functionsPlatform();
    await deployFrom(path.join(ROOT, 'functions/regex/fixtures/distribution.ts'), 'regex-distribution');
    const input = { prompt: 'The little girl had a', pattern: ' (cat|dog|doll|big ball)', draws: DRAWS };
    const { expected, drawn } = await call(platform, 'regex-distribution', input);
    assert.equal(
      drawn.reduce((sum: number, count: number) => sum + count, 0),
      DRAWS,
    );
    // The chi-squared test needs about five expected samples of each kind of token, so all rarer tokens count as one kind.
    let chiSquared = 0;
    let kinds = 0;
    let rare = { probability: 0, count: 0 };
    const add = (probability: number, count: number) => {
      chiSquared += (count - probability * DRAWS) ** 2 / (probability * DRAWS);
      kinds++;
    };
    for (const [i, probability] of expected.entries()) {
      if (probability * DRAWS >= 5) add(probability, drawn[i]);
      else rare = { probability: rare.probability + probability, count: rare.count + drawn[i] };
    }
    if (rare.probability > 0) add(rare.probability, rare.count);
    assert.ok(kinds >= 4, `${kinds} kinds of tokens`);
    // Values that chi-squared exceeds by chance once in a thousand, by degrees of freedom. The seeds are fixed, so the outcome is, too.
    const bound = [0, 10.8, 13.8, 16.3, 18.5, 20.5, 22.5, 24.3, 26.1][kinds - 1] ?? 40;
    assert.ok(chiSquared < bound, `${chiSquared} of ${JSON.stringify({ expected, drawn })}`);
  });

  it('reports a faulty pattern', async () => {
    assert.match((await failingFunction('regex', { pattern: '(' })).message, /^invalid-argument: /);
  });
});
