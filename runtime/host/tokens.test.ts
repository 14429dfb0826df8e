import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { Tokens } from './tokens.ts';

interface Call {
  readonly input: number;
  readonly output: number;
  readonly fails: boolean;
  /** Of the input, what a cache has. */
  readonly cached: number;
  /** Calls issued before its answer comes. */
  readonly delay: number;
}

const call: fc.Arbitrary<Call> = fc.record({
  input: fc.nat({ max: 40 }),
  output: fc.nat({ max: 8 }),
  fails: fc.boolean(),
  cached: fc.nat({ max: 40 }),
  delay: fc.nat({ max: 5 }),
});

test('whatever is under way together, the quota is never passed, and what fits is not refused', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 60 }), fc.nat({ max: 400 }), async (calls, left) => {
      let reached = 0;
      const tokens = new Tokens({ limit: 1_000_000, shared: () => null, quotaReached: () => reached++ });
      tokens.allow({ inputTokens: 0, outputTokens: 0, cachedTokens: 0 }, left);
      const answers: { at: number; answer: () => Promise<void> }[] = [];
      let pending = 0;
      let refusals = 0;
      for (const [at, { input, output, fails, cached, delay }] of calls.entries()) {
        for (const due of answers.filter((one) => one.at === at)) await due.answer();
        const counted = tokens.input - tokens.cached + tokens.output + pending;
        const refused = tokens.refuse(input + output);
        assert.equal(refused !== null, counted + input + output > left);
        if (refused) {
          refusals++;
          continue;
        }
        const { promise, resolve } = Promise.withResolvers<Outcome<undefined>>();
        const done = tokens.during(input, output, promise);
        pending += output;
        const answer = async () => {
          resolve(fails ? { tag: 'err', val: handlerError('internal', 'no') } : ok(undefined));
          await done;
          pending -= output;
          if (!fails) tokens.countCached(Math.min(cached, input));
        };
        answers.push({ at: at + 1 + delay, answer });
        assert.ok(tokens.input - tokens.cached + tokens.output <= left);
      }
      assert.equal(reached, refusals);
    }),
    { seed: 20263, numRuns: 300 },
  );
});

test('what comes out counts once it is there; an allowance is of what was counted when it was given', async () => {
  const tokens = new Tokens({ limit: 100, shared: () => null, quotaReached: () => undefined });
  const { promise, resolve } = Promise.withResolvers<Outcome<undefined>>();
  const done = tokens.during(10, 3, promise);
  assert.deepEqual([tokens.input, tokens.output, tokens.quotaLeft], [10, 0, Number.POSITIVE_INFINITY]);
  tokens.allow({ inputTokens: 10, outputTokens: 0, cachedTokens: 0 }, 5);
  assert.equal(tokens.quotaLeft, 2, 'what is under way has its place');
  resolve(ok(undefined));
  await done;
  assert.deepEqual([tokens.output, tokens.quotaLeft], [3, 2]);
  tokens.allow({ inputTokens: 10, outputTokens: 3, cachedTokens: 0 }, 0);
  assert.match(tokens.refuse(1)?.val ?? '', /quota tokens: 1 are asked for and 0 are left/);
  assert.equal(tokens.refuse(0), null);
  tokens.allow({ inputTokens: 10, outputTokens: 3, cachedTokens: 0 }, null);
  assert.equal(tokens.refuse(50), null);
  tokens.count(90, 0);
  assert.match(tokens.refuse(1)?.val ?? '', /the invocation's 100 tokens/);
});
