import assert from 'node:assert/strict';
import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomModel } from '../models/testing/random-model.ts';
import { generate, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, Workbench, withWorkbench } from '../testing/workbench.ts';

/** Embeds with the states after each token of the prompt. */
function statesOf(b: Workbench): Uint32Array {
  const count = PROMPT.length;
  const embeds = b.embeds(2 * count);
  const inputs = embeds.subarray(0, count);
  const states = embeds.slice(count);
  b.embedText(Uint32Array.from(PROMPT), range(0, count), inputs);
  b.forward(NONE, inputs, NONE, states);
  return states;
}

withWorkbench('queries of a state', (handler) => {
  handler('log-probabilities and entropy are those of the whole distribution', async (b) => {
    const states = statesOf(b);
    const vocabulary = b.host.model.config.vocabularySize;
    const whole = await b.oracle.top(PROMPT, [...PROMPT.keys()], PROMPT.length, vocabulary);
    for (const row of [0, 4, PROMPT.length - 1]) {
      const byToken = new Map<number, number>();
      for (let i = row * vocabulary; i < (row + 1) * vocabulary; i++)
        byToken.set(whole.tokens[i]!, whole.logProbabilities[i]!);
      const tokens = ids(5, 0, vocabulary - 1, 5);
      const [given, entropy] = await Promise.all([
        b.ask({ op: 'log-probabilities', embed: states[row]!, tokens }),
        b.ask({ op: 'entropy', embed: states[row]! }),
      ]);
      const values = must(given);
      assert.equal(values.length, tokens.length);
      for (const [i, token] of tokens.entries()) assert.ok(Math.abs(values[i]! - byToken.get(token)!) < 1e-4);
      const expected = [...byToken.values()].reduce((sum, log) => sum - log * Math.exp(log), 0);
      assert.ok(Math.abs(must(entropy) - expected) < 1e-4);
    }
    assert.deepEqual(
      must(await b.ask({ op: 'log-probabilities', embed: states[0]!, tokens: NONE })),
      new Float32Array(0),
    );
  });

  handler('`read-embed` gives the embedding of a token, or a state', async (b) => {
    const states = statesOf(b);
    const expected = await b.oracle.states(PROMPT);
    const [token] = b.embeds(1);
    b.embedText(ids(17), ids(0), ids(token!));
    const row = must(await b.ask({ op: 'read-embed', embed: token! }));
    const { hiddenSize } = b.host.model.config;
    const matrix = b.host.model.tensors.read('model.embed_tokens.weight');
    assert.deepEqual(row, matrix.slice(17 * hiddenSize, 18 * hiddenSize));
    for (const at of [0, PROMPT.length - 1]) {
      const values = must(await b.ask({ op: 'read-embed', embed: states[at]! }));
      assert.equal(values.length, hiddenSize);
      for (const [i, value] of values.entries()) assert.ok(Math.abs(value - expected[at]![i]!) < 1e-4);
    }
  });

  handler('an invalid query fails with its own error, and later queries succeed', async (b) => {
    const states = statesOf(b);
    const [token, empty] = b.embeds(2);
    b.embedText(ids(17), ids(0), ids(token!));
    const vocabulary = b.host.model.config.vocabularySize;
    const refused: [Promise<Parameters<typeof tagOf>[0]>, string][] = [
      [b.ask({ op: 'log-probabilities', embed: states[0]!, tokens: ids(1, vocabulary) }), 'invalid-argument'],
      [b.ask({ op: 'log-probabilities', embed: token!, tokens: ids(1) }), 'invalid-argument'],
      [b.ask({ op: 'entropy', embed: empty! }), 'invalid-argument'],
      [b.ask({ op: 'entropy', embed: 5000 }), 'not-owned'],
      [b.ask({ op: 'read-embed', embed: empty! }), 'invalid-argument'],
      [b.ask({ op: 'read-embed', embed: 5000 }), 'not-owned'],
      [b.next(states[0]!, 0), 'invalid-argument'],
      [b.ask({ op: 'entropy', embed: states[0]! }), 'ok'],
      [b.ask({ op: 'log-probabilities', embed: states[1]!, tokens: ids(1) }), 'ok'],
      [b.next(states[2]!, 3), 'ok'],
    ];
    for (const [outcome, tag] of refused) assert.equal(tagOf(await outcome), tag);
  });
});

test('a host whose model files were replaced answers no query from the new files, and generates with the old weights', async () => {
  await using host = await startTestHost({ backend: 'onnx' });
  const { directory, config } = host.model;
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const states = statesOf(b);
  must(await b.inferlet.synchronize(b.queue));
  const [token] = b.embeds(1);
  b.embedText(ids(17), ids(0), ids(token!));
  const other = join(host.directory, 'other');
  await randomModel(other, config, 2);
  rmSync(directory, { recursive: true });
  renameSync(other, directory);
  for (const operation of [
    { op: 'entropy', embed: states[0]! },
    { op: 'next-distribution', embed: states[0]!, topK: 3 },
    { op: 'read-embed', embed: token! },
  ] as const) {
    const outcome = await b.ask(operation);
    assert.equal(tagOf(outcome), 'unavailable', operation.op);
    const text = outcome.tag === 'err' ? outcome.val.val : '';
    assert.match(text, /was changed since it was checked; restart the GPU host/);
  }
  await b.inferlet.synchronize(b.queue);
  // The decoder that was opened at the start also returns attention.
  must(await b.ask({ op: 'forward-scores', inPages: NONE, inEmbeds: ids(token!), outPages: NONE, outEmbeds: NONE }));
  assert.deepEqual(await generate(b.inferlet, b.queue, PROMPT, 6), await b.oracle.greedy(PROMPT, 6));
  await b.inferlet.close();
});
