import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { RUN_WINDOW_TOKENS } from '#gpu-host/protocol/wire.ts';
import { SPARE_TOKENS } from '#scheduler/quotas/grants.ts';
import { Tokens } from './tokens.ts';

interface Call {
  readonly input: number;
  readonly output: number;
  readonly fails: boolean;
  /** Input tokens that the host may find in its cache. */
  readonly cacheable: number;
  /** Input tokens that the host finds in its cache. */
  readonly cached: number;
  /** Number of later calls that are made before the answer of this call comes. */
  readonly delay: number;
  /** The ceiling that the store grants before this call, above what the inferlet needs then; null for no answer of the store. */
  readonly spare: number | null;
}

const call: fc.Arbitrary<Call> = fc.record({
  input: fc.nat({ max: 40 }),
  output: fc.nat({ max: 8 }),
  fails: fc.boolean(),
  cacheable: fc.constantFrom(0, 0, 7, 40),
  cached: fc.nat({ max: 40 }),
  delay: fc.nat({ max: 5 }),
  spare: fc.constantFrom(null, null, 0, 5, 100),
});

/** Tokens whose calls the test's device holds as an inferlet's devices do. */
class Held {
  readonly sent: number[] = [];
  asks = 0;
  error: HandlerError | null = null;
  #held: number[] = [];
  #isHeld = false;
  readonly tokens: Tokens;

  constructor(limit = 1_000_000, shared: { count(tokens: number): void; refuseTokens: () => null } | null = null) {
    this.tokens = new Tokens({
      limit,
      shared: () => shared,
      hold: (held) => {
        this.#isHeld = held === true;
        if (held === true) return;
        if (held === false) this.sent.push(...this.#held);
        else this.error = held;
        this.#held = [];
      },
      askForTokens: () => {
        this.asks++;
      },
    });
  }

  make(at: number): void {
    if (this.#isHeld) this.#held.push(at);
    else this.sent.push(at);
  }
}

test('no call is sent without room under the ceiling, calls are sent in order, and all tokens of a call count until its answer', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 60, size: 'max' }), fc.nat({ max: 200 }), async (calls, room) => {
      const device = new Held();
      const { tokens } = device;
      let ceiling = room;
      tokens.grant(ceiling);
      const answers: { readonly at: number; readonly call: number; readonly answer: () => Promise<void> }[] = [];
      const answered = new Set<number>();
      const answerDue = async (now: number) => {
        for (const due of answers) {
          if (due.at > now || answered.has(due.call) || !device.sent.includes(due.call)) continue;
          answered.add(due.call);
          await due.answer();
        }
      };
      const chargeOf = (index: number) => {
        const { input, output, fails, cacheable, cached } = calls[index] as Call;
        if (!answered.has(index)) return input + output;
        return input - (fails ? 0 : Math.min(cacheable, cached, input)) + (fails ? 0 : output);
      };
      const check = () => {
        const charged = device.sent.reduce((sum, index) => sum + chargeOf(index), 0);
        assert.equal(tokens.charged, charged);
        assert.ok(charged <= ceiling, `${charged} of ${ceiling}`);
        assert.ok(
          device.sent.every((index, place) => index === place),
          'in order',
        );
      };
      const grant = (spare: number) => {
        const { keep, need, want } = tokens.ask();
        assert.ok(keep <= need && need <= want && keep >= tokens.charged);
        ceiling = Math.max(keep, Math.min(need + spare, want));
        tokens.grant(ceiling);
      };
      for (const [index, { input, output, fails, cacheable: most, cached, delay, spare }] of calls.entries()) {
        await answerDue(index);
        if (spare !== null) grant(spare);
        const cacheable = Math.min(most, input);
        const { promise, resolve } = Promise.withResolvers<Outcome<number>>();
        const done = tokens.during(
          { inputs: input, outputs: output, cacheable },
          () => {
            device.make(index);
            return promise;
          },
          (count) => count,
        );
        assert.equal(done, promise, 'counting does not delay the answer');
        const answer = async () => {
          resolve(fails ? { tag: 'err', val: handlerError('internal', 'no') } : ok(Math.min(cached, cacheable)));
          await done;
        };
        answers.push({ at: index + 1 + delay, call: index, answer });
        check();
      }
      while (answered.size < calls.length) {
        if (tokens.isHeld) grant(0);
        await answerDue(Number.POSITIVE_INFINITY);
        check();
      }
      assert.equal(tokens.charged, tokens.input - tokens.cached + tokens.output, 'nothing is under way');
    }),
    { seed: 20263, numRuns: 300 },
  );
});

/** A run whose device decodes as far as it may, and whose inferlet takes tokens in chunks. */
const runs = fc.record({
  maxTokens: fc.integer({ min: 1, max: 1200 }),
  chunks: fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 30, maxLength: 60 }),
  spares: fc.array(fc.constantFrom(null, 0, 1, 2, 64, 500, 5000), { minLength: 30, maxLength: 60 }),
  room: fc.nat({ max: 700 }),
});

test('a run decodes no token without room, and every token for which there is room', () => {
  fc.assert(
    fc.property(runs, ({ maxTokens, chunks, spares, room }) => {
      const device = new Held();
      const { tokens } = device;
      let ceiling = room;
      tokens.grant(ceiling);
      const grant = (spare: number) => {
        const { keep, need, want } = tokens.ask();
        ceiling = Math.max(keep, Math.min(need + spare, want));
        tokens.grant(ceiling);
      };
      let [left, turn] = [maxTokens, 0];
      while (left > 0) {
        const run = tokens.openRun(left);
        if (tokens.isHeld) grant(spares[turn++ % spares.length] ?? 0);
        assert.ok(!tokens.isHeld);
        const most = run.deviceTokens;
        let [taken, known, reported] = [0, 0, 0];
        const bound = () => Math.min(most, known + RUN_WINDOW_TOKENS);
        while (taken < most) {
          const chunk = Math.min(chunks[turn++ % chunks.length] ?? 1, bound() - taken);
          run.count(chunk);
          taken += chunk;
          assert.ok(tokens.charged <= ceiling, `${tokens.charged} of ${ceiling}`);
          assert.ok(tokens.charged >= 2 * (maxTokens - left + bound()), 'all that the device may decode counts');
          if (taken < most && taken - reported >= RUN_WINDOW_TOKENS / 4) {
            reported = taken;
            run.consumed(taken, (count) => {
              assert.ok(count >= known && count <= taken);
              known = count;
            });
          }
          if (taken === bound() && taken < most) {
            assert.ok(tokens.isShort, 'a stalled run asks');
            grant(spares[turn++ % spares.length] ?? 0);
            assert.ok(bound() > taken);
          } else if (chunk % 3 === 0) {
            const spare = spares[turn++ % spares.length];
            if (spare !== null && spare !== undefined) grant(spare);
          }
        }
        run.end();
        left -= taken;
        assert.equal(tokens.charged, 2 * (maxTokens - left));
      }
    }),
    { seed: 41, numRuns: 300 },
  );
});

test('outputs count after their call, and the ceiling covers calls under way', async () => {
  const device = new Held(100);
  const { tokens } = device;
  const { promise, resolve } = Promise.withResolvers<Outcome<undefined>>();
  const done = tokens.during({ inputs: 10, outputs: 3, cacheable: 0 }, () => promise);
  assert.deepEqual([tokens.input, tokens.output, tokens.charged], [10, 0, 13]);
  resolve(ok(undefined));
  await done;
  assert.deepEqual([tokens.output, tokens.charged], [3, 13]);
  tokens.grant(13);
  tokens.count(1, 0);
  assert.deepEqual([tokens.isHeld, tokens.input, device.asks], [true, 10, 1]);
  assert.deepEqual(tokens.ask(), { keep: 13, need: 14, want: 14 + SPARE_TOKENS });
  tokens.grant(14);
  assert.deepEqual([tokens.isHeld, tokens.input], [false, 11]);
  tokens.grant(null);
  tokens.count(90, 0);
  assert.match(tokens.refuse()?.val ?? '', /the invocation's 100 tokens/);
});

test('the outputs of a failed call count neither for the inferlet nor for its family', async () => {
  let counted = 0;
  const shared = {
    count(tokens: number) {
      counted += tokens;
    },
    refuseTokens: () => null,
  };
  const { tokens } = new Held(1_000_000, shared);
  const failed = handlerError('unavailable', 'the GPU host is away');
  await tokens.during({ inputs: 10, outputs: 3, cacheable: 0 }, () =>
    Promise.resolve<Outcome<undefined>>({ tag: 'err', val: failed }),
  );
  assert.deepEqual([tokens.input, tokens.output, counted], [10, 0, 10]);
});

test("a quota reserves a cached prompt and gets it back with the answer; the manifest's limit counts it for good", async () => {
  const { tokens } = new Held(1000);
  tokens.grant(801);
  const { promise, resolve } = Promise.withResolvers<Outcome<number>>();
  const done = tokens.during(
    { inputs: 800, outputs: 1, cacheable: 799 },
    () => promise,
    (cached) => cached,
  );
  assert.deepEqual([tokens.input, tokens.charged], [1, 801]);
  assert.equal(tokens.refuse(), null);
  resolve(ok(799));
  await done;
  assert.deepEqual([tokens.input, tokens.cached, tokens.output, tokens.charged], [800, 799, 1, 2]);
  tokens.count(200, 0);
  assert.match(tokens.refuse()?.val ?? '', /the invocation's 1000 tokens/);
});

test('a refused quota fails the waiting calls, which then count nowhere, and all later ones', async () => {
  const device = new Held();
  const { tokens } = device;
  tokens.grant(5);
  const { promise, resolve } = Promise.withResolvers<Outcome<number>>();
  const done = tokens.during({ inputs: 6, outputs: 1, cacheable: 3 }, () => promise);
  const error = handlerError('limit-exceeded', 'the quota is used up');
  tokens.refuseQuota(error);
  resolve({ tag: 'err', val: error });
  await done;
  assert.deepEqual([device.error, tokens.charged, tokens.input, tokens.isHeld], [error, 0, 0, false]);
  assert.equal(tokens.refuse(), error);
});

test('a call that fails while it is held costs nothing, and the calls behind it go on', async () => {
  const { tokens } = new Held();
  tokens.grant(100);
  const failed = handlerError('limit-exceeded', 'too large');
  const fails = Promise.withResolvers<Outcome<null>>();
  const large = tokens.during({ inputs: 150, outputs: 60, cacheable: 40 }, () => fails.promise);
  const encoding = Promise.withResolvers<Outcome<null>>();
  const encoded = tokens.encoding(500, () => encoding.promise);
  const answer = Promise.withResolvers<Outcome<null>>();
  const small = tokens.during({ inputs: 30, outputs: 1, cacheable: 0 }, () => answer.promise);
  assert.equal(tokens.isHeld, true);
  assert.equal(tokens.charged, 0);
  fails.resolve({ tag: 'err', val: failed });
  encoding.resolve({ tag: 'err', val: failed });
  await Promise.all([large, encoded]);
  assert.equal(tokens.isHeld, false);
  answer.resolve(ok(null));
  await small;
  assert.equal(tokens.charged, 31);
  tokens.grant(10_000);
  assert.deepEqual([tokens.input, tokens.output, tokens.charged], [30, 1, 31]);
});

test('a run that is dropped while it is held takes no tokens and no call, and the calls behind it go on', async () => {
  const device = new Held();
  const { tokens } = device;
  tokens.grant(1);
  const run = tokens.openRun(100);
  device.make(0);
  assert.deepEqual([tokens.isHeld, tokens.charged], [true, 0]);
  const { promise, resolve } = Promise.withResolvers<Outcome<null>>();
  const small = tokens.during({ inputs: 1, outputs: 0, cacheable: 0 }, () => {
    device.make(1);
    return promise;
  });
  run.end();
  assert.deepEqual([tokens.isHeld, tokens.charged, run.deviceTokens], [false, 1, 0]);
  assert.deepEqual([device.sent, tokens.ask().need], [[0, 1], 1], 'the device asks the run before it sends its call');
  resolve(ok(null));
  await small;
  const sent = tokens.openRun(100);
  tokens.grant(200);
  sent.end();
  assert.deepEqual([sent.deviceTokens > 0, tokens.charged], [true, 1]);
});
