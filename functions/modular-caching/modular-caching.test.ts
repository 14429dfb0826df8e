import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { call } from '#test/harness/deploy.ts';
import {
  callFunction,
  countersOf,
  deployFrom,
  failingFunction,
  functionsPlatform,
  refusedInput,
  STORIES,
} from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const LIBRARY = {
  name: 'modular-caching-test',
  system: 'Once upon a time, there was a big park with green trees and a small lake.',
  modules: {
    dog: ' A dog named Max lived in the park. He liked to run after his red ball.',
    girl: ' A little girl named Lily came to the park every day with her mom.',
    bird: ' A blue bird sat in a tree and sang a song.',
  },
};
const QUESTION = ' One day, Lily';
const MAX_TOKENS = 24;

interface Row {
  readonly tokens: readonly number[];
  readonly logProbabilities: readonly number[];
}

/** Kullback–Leibler divergence D(`full` ‖ `other`), in nats, over the tokens of `full`. A token not in `other` counts as its least probable one. */
function divergence(full: Row, other: Row): number {
  const least = Math.min(...other.logProbabilities);
  const found = new Map(other.tokens.map((token, i) => [token, other.logProbabilities[i]!]));
  return full.tokens.reduce((sum, token, i) => {
    const logProbability = full.logProbabilities[i]!;
    return sum + Math.exp(logProbability) * (logProbability - (found.get(token) ?? least));
  }, 0);
}

const mean = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

describe('modular-caching', () => {
  it('computes each module once for all prompts, and otherwise only the question', async () => {
    const count = await tokenCounter(STORIES);
    const ask = async (use: readonly string[], keep = true) => {
      await countersOf(STORIES, { reset: true });
      const { output } = await callFunction('modular-caching', {
        ...LIBRARY,
        use,
        question: QUESTION,
        maxTokens: MAX_TOKENS,
        keep,
      });
      return { ...output, computed: (await countersOf()).tokens };
    };
    // The model computes the question and the answer, but not the answer's last token: no token follows it.
    const answer = count.continuing(QUESTION) + MAX_TOKENS - 1;
    const { dog, girl, bird } = LIBRARY.modules;

    const first = await ask(['dog', 'girl']);
    assert.deepEqual(first.made, ['system', 'module/dog', 'module/girl']);
    assert.equal(first.computed, count.begin(LIBRARY.system) + count.continuing(dog, girl) + answer);
    const second = await ask(['girl', 'dog']);
    assert.deepEqual(second.made, []);
    assert.equal(second.computed, answer);
    assert.deepEqual(second.tokens, first.tokens);
    const other = await ask(['girl', 'bird'], false);
    assert.deepEqual(other.made, ['module/bird']);
    assert.equal(other.computed, count.continuing(bird) + answer);
    assert.equal(other.promptTokens, count.begin(LIBRARY.system) + count.continuing(dog, girl, bird, QUESTION));
  });

  it('equals attention restricted to modules, and stays close to full attention', async (test) => {
    await deployFrom(path.join(import.meta.dirname, 'fixtures/uncached.ts'), 'modular-caching-uncached');
    const compare = async (use: readonly string[]) => {
      const { output: said } = await callFunction('modular-caching', {
        ...LIBRARY,
        use,
        question: QUESTION,
        maxTokens: MAX_TOKENS,
      });
      const output = await call(await functionsPlatform(), 'modular-caching-uncached', {
        ...LIBRARY,
        model: STORIES,
        use,
        question: QUESTION,
        answer: said.tokens,
        topK: 128,
      });
      const [cached, masked, full] = [output.cached, output.masked, output.full] as Row[][];
      for (const [i, row] of cached!.entries()) {
        assert.equal(row.tokens[0], masked![i]!.tokens[0]);
        assert.ok(divergence(masked![i]!, row) < 1e-4);
        // The device also batches calls of other tests, so it may split the two prefills at different tokens. Since the model's head rounds its
        // input to 8 bits, a value may then round differently.
        assert.ok(Math.abs(row.logProbabilities[0]! - masked![i]!.logProbabilities[0]!) < 1e-2);
      }
      return {
        divergence: mean(full!.map((row, i) => divergence(row, cached![i]!))),
        agreement: mean(full!.map((row, i) => Number(row.tokens[0] === cached![i]!.tokens[0]))),
      };
    };
    for (const use of [
      ['dog', 'girl', 'bird'],
      ['dog', 'bird'],
    ]) {
      const { divergence, agreement } = await compare(use);
      test.diagnostic(
        `${use}: ${divergence.toFixed(3)} nats from full attention, the same best token ${agreement * 100} %`,
      );
      assert.ok(divergence > 0 && divergence < 0.25, `${divergence} nats`);
      assert.ok(agreement >= 0.7, `${agreement}`);
    }
    // Removes the modules that the calls above have saved. The platform also serves other tests.
    await callFunction('modular-caching', { ...LIBRARY, use: [], question: QUESTION, maxTokens: 1, keep: false });
  });

  it('names the field of a bad input', async () => {
    const input = { ...LIBRARY, question: QUESTION };
    for (const name of ['cat', 'toString']) {
      const { message } = await failingFunction('modular-caching', { ...input, use: [name] });
      assert.match(message, new RegExp(`has no module "${name}"`));
    }
    assert.deepEqual(await refusedInput('modular-caching', { ...input, use: 'dog' }), { status: 422, field: '/use' });
  });
});
