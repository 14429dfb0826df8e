import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const PROMPT = 'In a small house near the forest there lived an old man with a brown dog. The dog liked to';
const CANDIDATES = [
  ' tax zebras and lawyers',
  ' play in the forest',
  ' engine over under',
  ' run and play with the ball',
];

const JUDGE = '\nDid the dog have fun? Answer:';

/** The logarithm of the probability of each token of `text` after a prompt, as the OpenAI route's `echo` gives them. */
async function logProbabilities(prompt: string, text: string): Promise<number[]> {
  const input = { model: STORIES, prompt: `${prompt}${text}`, echo: true, logprobs: 1, max_tokens: 1, temperature: 0 };
  const { output } = await callFunction('openai-completions', input);
  const { token_logprobs: logs, text_offset: offsets } = output.choices[0].logprobs;
  return logs.filter((_: number, i: number) => offsets[i] >= prompt.length && offsets[i] < prompt.length + text.length);
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

/** Allows a small difference, because the two sides compute in batches of different shapes. */
function assertNear(actual: number, expected: number, what: string): void {
  assert.ok(Math.abs(actual - expected) < 1e-3, `${what}: ${actual}, expected ${expected}`);
}

describe('best-of-n', () => {
  it('computes the prompt once, decodes in joint batches and returns the most probable candidate', async () => {
    const count = await tokenCounter(STORIES);
    const before = await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('best-of-n', { prompt: PROMPT, n: 4, script: CANDIDATES });
    const stats = await countersOf();
    const order = output.candidates.map(({ text }: { text: string }) => text);
    assert.deepEqual(new Set(order.slice(0, 2)), new Set([CANDIDATES[1], CANDIDATES[3]]));
    assert.equal(output.best, order[0]);

    const candidateTokens = CANDIDATES.map((text) => count.continuing(text)).reduce((a, b) => a + b, 0);
    // The prompt without its last token is computed once. Each candidate computes the prompt's last token and its own tokens. Scores cost no tokens.
    assert.equal(stats.tokens, count.begin(PROMPT) - 1 + CANDIDATES.length + candidateTokens);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const withoutSharing = CANDIDATES.length * count.begin(PROMPT) + candidateTokens;
    assert.ok(withoutSharing > 2 * stats.tokens);
    // Between two steps, each candidate's code runs in the sandbox. On a busy machine their calls may then miss each other: try several invocations.
    const isJoint = ({ batchSizes }: typeof stats) => batchSizes.some((batches, size) => size > 1 && batches > 0);
    let last = stats;
    for (let tries = 1; !isJoint(last) && tries < 10; tries++) {
      await countersOf(STORIES, { reset: true });
      await callFunction('best-of-n', { prompt: PROMPT, n: 4, script: CANDIDATES });
      last = await countersOf();
    }
    assert.ok(isJoint(last), `${last.batchSizes}`);
  });

  it('scores each candidate by its mean log-probability', async () => {
    const { output } = await callFunction('best-of-n', { prompt: PROMPT, n: 4, script: CANDIDATES });
    for (const { text, score } of output.candidates) {
      const logs = await logProbabilities(PROMPT, text);
      assertNear(score, sum(logs) / logs.length, text);
    }
  });

  it("ranks the candidates by the model's judgement", async () => {
    const input = { prompt: PROMPT, n: 4, rank: 'judge', judge: JUDGE, script: CANDIDATES };
    const { output } = await callFunction('best-of-n', input);
    const scores: number[] = [];
    for (const { text, score } of output.candidates) {
      const [yes, no] = await Promise.all(
        [' yes', ' no'].map((answer) => logProbabilities(`${PROMPT}${text}${JUDGE}`, answer)),
      );
      assertNear(score, sum(yes ?? []) - sum(no ?? []), text);
      scores.push(score);
    }
    assert.deepEqual(
      scores,
      scores.toSorted((a, b) => b - a),
    );
    assert.equal(new Set(scores).size, CANDIDATES.length);
    assert.equal(output.best, output.candidates[0].text);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('best-of-n', { prompt: '', n: 1 }), { status: 422, field: '/n' });
  });
});
