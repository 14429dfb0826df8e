import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { EncoderTokens, Tokens } from './tokens.ts';

/** The tokens of a call, and how many of them a host computes before the call ends. */
const call = fc.record({ tokens: fc.integer({ min: 1, max: 50 }), computed: fc.nat({ max: 50 }) });
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;

test('the reserve covers all tokens that open calls may still compute; with the computed tokens, it never exceeds the tokens of all calls', () => {
  fc.assert(
    fc.property(fc.array(call, { maxLength: 30, size: 'max' }), fc.infiniteStream(fc.nat()), (calls, choices) => {
      const tokens = new EncoderTokens();
      const open: { uncomputed: number; readonly drawn: Call }[] = [];
      let [asked, computed, begun] = [0, 0, 0];
      const next = (below: number) => Number(choices.next().value) % below;
      while (begun < calls.length || open.length > 0) {
        const at = next(open.length + 1);
        const chosen = open[at];
        if (!chosen) {
          const drawn = calls[begun++];
          if (!drawn) continue;
          tokens.begin(drawn.tokens);
          asked += drawn.tokens;
          open.push({ uncomputed: Math.min(drawn.tokens, drawn.computed), drawn });
        } else if (chosen.uncomputed > 0) {
          const part = 1 + next(chosen.uncomputed);
          chosen.uncomputed -= part;
          computed += part;
          tokens.compute(part);
        } else {
          tokens.end(chosen.drawn.tokens);
          open.splice(at, 1);
        }
        assert.equal(tokens.computed, computed);
        const stillToCome = open.reduce((sum, { uncomputed }) => sum + uncomputed, 0);
        assert.ok(tokens.reserved >= stillToCome, 'every token that may still be computed is reserved');
        assert.ok(tokens.computed + tokens.reserved <= asked);
      }
      assert.equal(tokens.reserved, 0);
    }),
    { seed: 11, numRuns: 300 },
  );
});

test('a call reserves all its tokens in quota, limit and family until it ends; then only the computed ones count', async () => {
  let family = 0;
  const count = (more: number) => {
    family += more;
  };
  const tokens = new Tokens({
    limit: 100,
    shared: () => ({ count, refuseTokens: () => null }),
    hold: () => undefined,
    askForTokens: () => undefined,
  });
  tokens.grant(130);
  const { promise, resolve } = Promise.withResolvers<Outcome<null>>();
  const done = tokens.encoding(120, () => promise);
  assert.deepEqual([tokens.input, tokens.charged, family], [0, 120, 120]);
  assert.match(tokens.refuse()?.val ?? '', /the invocation's 100 tokens/);
  tokens.encoded(30);
  assert.deepEqual([tokens.input, tokens.charged, family], [30, 120, 120]);
  // The host reports the batch on the device before it answers the call that was given up.
  tokens.encoded(6);
  resolve({ tag: 'err', val: handlerError('closed', 'given up') });
  await done;
  assert.deepEqual([tokens.input, tokens.charged, family], [36, 36, 36]);
  assert.equal(tokens.refuse(), null);
  await tokens.encoding(40, () => Promise.resolve(ok(null)));
  tokens.encoded(1000);
  assert.equal(tokens.input, 160, 'at most the 120 + 40 tokens of both calls');
});

test('an inferlet that ends keeps what it was granted: the tokens of its last batch are reported after its end', async (t) => {
  const tokens = new Tokens({ limit: 1000, shared: () => null, hold: () => undefined, askForTokens: () => undefined });
  t.mock.timers.enable({ apis: ['Date'] });
  const clock = t.mock.method(performance, 'now', () => Date.now());
  tokens.grant(130);
  await tokens.encoding(120, () => Promise.resolve({ tag: 'err', val: handlerError('terminated', 'replaced') }));
  t.mock.timers.tick(60_000);
  assert.equal(tokens.hasSurplus, false);
  assert.deepEqual([tokens.charged, tokens.ask().keep], [0, 130]);
  tokens.encoded(120);
  assert.deepEqual([tokens.charged, tokens.ask().keep], [120, 130]);
  clock.mock.restore();
});
