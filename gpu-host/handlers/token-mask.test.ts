import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Outcome, StepOutput, StepResult } from '../protocol/client.ts';
import { GREEDY, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, Workbench, withWorkbench } from '../testing/workbench.ts';
import { checkAllowed } from './calls/checks.ts';

/** One row of a token mask, which allows these tokens. */
function allow(b: Workbench, ...tokens: readonly number[]): Uint32Array {
  const words = new Uint32Array(Math.ceil(b.host.model.config.vocabularySize / 32));
  for (const token of tokens) words[token >> 5] = (words[token >> 5]! | (1 << (token & 31))) >>> 0;
  return words;
}

function step(
  b: Workbench,
  allowed: Uint32Array | undefined,
  output: StepOutput,
  rows = 1,
): Promise<Outcome<StepResult>> {
  return b.ask({
    op: 'step',
    request: {
      tokens: Uint32Array.from(PROMPT),
      positions: range(0, PROMPT.length),
      inPages: NONE,
      outPages: NONE,
      mask: undefined,
      rows,
      output,
      allowed,
    },
  });
}

withWorkbench('steps with a token mask', (handler) => {
  handler('only allowed tokens are chosen, and their probabilities sum to 1', async (b) => {
    const vocabulary = b.host.model.config.vocabularySize;
    const whole = await b.oracle.top(PROMPT, [...PROMPT.keys()], 1, vocabulary);
    const order = [...whole.tokens];
    const some = [order[20]!, order[5]!, order[90]!];
    const greedy = must(await step(b, allow(b, ...some), { tag: 'sample', val: GREEDY }));
    assert.deepEqual([...greedy.tokens], [order[5]]);

    const { distributions } = must(await step(b, allow(b, ...some), { tag: 'distributions', val: 8 }));
    assert.deepEqual([...distributions[0]!.tokens], [order[5], order[20], order[90]], 'as many as are allowed');
    const logs = [5, 20, 90].map((rank) => whole.logProbabilities[rank]!);
    const sum = Math.log(logs.reduce((total, log) => total + Math.exp(log), 0));
    for (const [i, log] of logs.entries()) {
      assert.ok(Math.abs(distributions[0]!.logProbabilities[i]! - (log - sum)) < 1e-4);
    }

    for (let seed = 0; seed < 30; seed++) {
      const val = { temperature: 5, topK: 0, topP: 1, minP: 0, seed };
      const { tokens } = must(await step(b, allow(b, ...some), { tag: 'sample', val }));
      assert.ok(some.includes(tokens[0]!), `token ${tokens[0]}`);
    }
  });

  handler('each row has its own mask', async (b) => {
    const whole = await b.oracle.top(PROMPT, [...PROMPT.keys()], 2, b.host.model.config.vocabularySize);
    const first = whole.tokens[3]!;
    const second = whole.tokens[whole.topK + 7]!;
    const allowed = Uint32Array.from([...allow(b, first), ...allow(b, second)]);
    const { tokens } = must(await step(b, allowed, { tag: 'sample', val: GREEDY }, 2));
    assert.deepEqual([...tokens], [first, second]);
  });

  handler('a mask of another shape, or one that allows nothing, is refused', async (b) => {
    const words = allow(b, 1).length;
    const sample = { tag: 'sample', val: GREEDY } as const;
    const refused: [Uint32Array, StepOutput, number][] = [
      // No token is allowed.
      [new Uint32Array(words), sample, 1],
      // The row has a word too many.
      [new Uint32Array(words + 1).fill(1), sample, 1],
      // One of two rows is missing.
      [allow(b, 1), sample, 2],
      // The second row allows no token.
      [Uint32Array.from([...allow(b, 1), ...new Uint32Array(words)]), sample, 2],
      // The step has no output.
      [allow(b, 1), { tag: 'none' }, 0],
    ];
    for (const [allowed, output, rows] of refused) {
      assert.equal(tagOf(await step(b, allowed, output, rows)), 'invalid-argument');
    }
    assert.equal(tagOf(await step(b, ids(1, 0, 0), sample)), 'ok', '96 tokens are three words');
  });
});

test('a row that allows only tokens past the vocabulary is refused', () => {
  // The second word begins with token 32. Its bit 4 is token 36, the last of the 37 tokens; its bit 5 is token 37, which does not exist.
  assert.throws(() => checkAllowed(ids(0, 0b10_0000), 1, 37), /row 0 of the token mask allows no token/);
  assert.doesNotThrow(() => checkAllowed(ids(0, 0b1_0000), 1, 37));
});

test('each row keeps its own mask when the step is cut between rows', async () => {
  await using host = await startTestHost({ model: { maxBatchTokens: 4 } });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const rows = 7;
  const allowed = Array.from({ length: rows }, (_, row) => [...allow(b, row * 3, row * 3 + 1)]).flat();
  const { tokens } = must(
    await b.ask({
      op: 'step',
      request: {
        tokens: Uint32Array.from(PROMPT),
        positions: range(0, PROMPT.length),
        inPages: NONE,
        outPages: b.pages(2),
        mask: undefined,
        rows,
        output: { tag: 'sample', val: GREEDY },
        allowed: Uint32Array.from(allowed),
      },
    }),
  );
  for (const [row, token] of tokens.entries()) assert.ok(token === row * 3 || token === row * 3 + 1, `row ${row}`);
  assert.ok(host.host.stats().models[0]!.batches > 2, 'the step was cut');
});
