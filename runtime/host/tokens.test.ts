import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { Tokens } from './tokens.ts';

interface Call {
  readonly input: number;
  readonly output: number;
  readonly fails: boolean;
  /** Input tokens that the host may find in its cache. */
  readonly cacheable: number;
  /** Input tokens that the host finds in its cache. */
  readonly cached: number;
  /** Number of later calls that are issued before the answer of this call comes. */
  readonly delay: number;
}

const call: fc.Arbitrary<Call> = fc.record({
  input: fc.nat({ max: 40 }),
  output: fc.nat({ max: 8 }),
  fails: fc.boolean(),
  cacheable: fc.constantFrom(0, 0, 7, 40),
  cached: fc.nat({ max: 40 }),
  delay: fc.nat({ max: 5 }),
});
const NOTHING = { inputTokens: 0, outputTokens: 0, cachedTokens: 0 };
const allowance = (tokens: number | null) => ({ left: tokens, until: null });
const options = { limit: 1_000_000, shared: () => null, quotaReached: () => undefined, quotaUnknown: () => undefined };

test('only cacheable inputs can carry the charge beyond the quota, and a call that fits is not refused', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 60, size: 'max' }), fc.nat({ max: 400 }), async (calls, room) => {
      let reached = 0;
      const tokens = new Tokens({ ...options, quotaReached: () => reached++ });
      tokens.allow(NOTHING, allowance(room));
      const answers: { at: number; answer: () => Promise<void> }[] = [];
      // The test's own counts: the certain charge, the charge if nothing is cached, the charge so far, and outputs of calls under way.
      let [certainCharge, uncachedCharge, charged, pendingOutputs] = [0, 0, 0, 0];
      for (const [at, planned] of calls.entries()) {
        const { input, output, fails, delay } = planned;
        const cacheable = Math.min(planned.cacheable, input);
        const cached = fails ? 0 : Math.min(planned.cached, cacheable);
        for (const due of answers.filter((answer) => answer.at === at)) await due.answer();
        const least = input - cacheable + output;
        const before = reached;
        const refused = tokens.refuse(least);
        assert.equal(refused !== null, certainCharge + least > room);
        assert.equal(reached - before, refused ? 1 : 0);
        if (refused) continue;
        const { promise, resolve } = Promise.withResolvers<Outcome<number>>();
        const done = tokens.during(
          { inputs: input, outputs: output, cacheable },
          promise,
          (cachedCount) => cachedCount,
        );
        assert.equal(done, promise, 'counting does not delay the call');
        certainCharge += least;
        uncachedCharge += input + output;
        pendingOutputs += output;
        charged += input - cacheable;
        const answer = async () => {
          const reachedBefore = reached;
          resolve(fails ? { tag: 'err', val: handlerError('internal', 'no') } : ok(cached));
          await done;
          certainCharge += cacheable - cached - (fails ? output : 0);
          charged += cacheable - cached + (fails ? 0 : output);
          pendingOutputs -= output;
          assert.equal(
            reached - reachedBefore,
            cacheable > 0 && certainCharge > room ? 1 : 0,
            'the answer reports the exceeded quota',
          );
        };
        answers.push({ at: at + 1 + delay, answer });
        assert.equal(tokens.input - tokens.cached + tokens.output, charged);
        assert.equal(certainCharge, charged + pendingOutputs);
        assert.ok(certainCharge <= uncachedCharge);
      }
    }),
    { seed: 20263, numRuns: 300 },
  );
});

test('outputs count after their call, and an allowance bounds the tokens beyond the counts that it names', async () => {
  const tokens = new Tokens({ ...options, limit: 100 });
  const { promise, resolve } = Promise.withResolvers<Outcome<undefined>>();
  const done = tokens.during({ inputs: 10, outputs: 3, cacheable: 0 }, promise);
  assert.deepEqual([tokens.input, tokens.output, tokens.quotaLeft], [10, 0, Number.POSITIVE_INFINITY]);
  tokens.allow({ ...NOTHING, inputTokens: 10 }, allowance(5));
  assert.equal(tokens.quotaLeft, 2, 'the 3 outputs of the call under way are already charged');
  resolve(ok(undefined));
  await done;
  assert.deepEqual([tokens.output, tokens.quotaLeft], [3, 2]);
  tokens.allow({ ...NOTHING, inputTokens: 10, outputTokens: 3 }, allowance(0));
  assert.match(tokens.refuse(1)?.val ?? '', /quota tokens: 1 are requested and 0 are left/);
  assert.equal(tokens.refuse(0), null);
  tokens.allow({ ...NOTHING, inputTokens: 10, outputTokens: 3 }, allowance(null));
  assert.equal(tokens.refuse(50), null);
  tokens.count(90, 0);
  assert.match(tokens.refuse(1)?.val ?? '', /the invocation's 100 tokens/);
});

test('the outputs of a failed call count neither for the inferlet nor for its family', async () => {
  let counted = 0;
  const shared = {
    count(tokens: number) {
      counted += tokens;
    },
    refuseTokens: () => null,
  };
  const tokens = new Tokens({ ...options, shared: () => shared });
  const failed = handlerError('unavailable', 'the GPU host is away');
  await tokens.during(
    { inputs: 10, outputs: 3, cacheable: 0 },
    Promise.resolve<Outcome<undefined>>({ tag: 'err', val: failed }),
  );
  assert.deepEqual([tokens.input, tokens.output, counted], [10, 0, 10]);
});

test("a cached prompt is not charged to the quota, but the manifest's limit counts it at once", async () => {
  let reached = 0;
  const tokens = new Tokens({ ...options, limit: 1000, quotaReached: () => reached++ });
  tokens.allow(NOTHING, allowance(2));
  const { promise, resolve } = Promise.withResolvers<Outcome<number>>();
  const done = tokens.during({ inputs: 800, outputs: 1, cacheable: 799 }, promise, (cached) => cached);
  assert.deepEqual([tokens.input, tokens.quotaLeft], [1, 0]);
  assert.equal(tokens.refuse(0), null);
  tokens.count(200, 0);
  assert.match(tokens.refuse(0)?.val ?? '', /the invocation's 1000 tokens/);
  tokens.count(-200, 0);
  resolve(ok(799));
  await done;
  assert.deepEqual([tokens.input, tokens.cached, tokens.output, tokens.quotaLeft, reached], [800, 799, 1, 0, 0]);
  tokens.allow(NOTHING, allowance(null));
  tokens.count(199, 0);
  assert.equal(tokens.refuse(0), null, 'the cached inputs count once');
});

test('after its window the quota is unknown: no call is refused, and a new allowance is requested once', () => {
  let now = 1000;
  const reports: string[] = [];
  const tokens = new Tokens({
    ...options,
    quotaReached: () => void reports.push('reached'),
    quotaUnknown: () => void reports.push('unknown'),
    now: () => now,
  });
  tokens.allow(NOTHING, { left: 5, until: 2000 });
  assert.ok(tokens.refuse(6));
  now = 2000;
  assert.deepEqual([tokens.refuse(6), tokens.quotaLeft, tokens.refuse(1e9)], [null, Number.POSITIVE_INFINITY, null]);
  assert.deepEqual(reports, ['reached', 'unknown'], 'requested once');
  tokens.allow(NOTHING, { left: 4, until: 3000 });
  assert.ok(tokens.refuse(5));
  assert.equal(tokens.quotaLeft, 4);
});
