import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertBatched, callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const RULES = 'Halve a range of numbers, or say what the sum of all of them is.';
const DEPTH = 5;

interface Rehearsed {
  readonly problem: string;
  readonly parts: readonly Rehearsed[];
  readonly answer: string;
}

/** The parts and answers of a model that adds the numbers from `first` to `last` correctly. */
function rehearse(first: number, last: number): Rehearsed {
  const middle = (first + last - 1) / 2;
  const parts = first < last ? [rehearse(first, middle), rehearse(middle + 1, last)] : [];
  return { problem: `${first}-${last}`, parts, answer: `${((first + last) * (last - first + 1)) / 2}` };
}

const flat = (node: Rehearsed): Rehearsed[] => [node, ...node.parts.flatMap(flat)];
const answers = ({ parts }: Rehearsed) => `Answers: ${parts.map(({ answer }) => answer).join('; ')}\n`;
const divided = ({ parts }: Rehearsed) => parts.map(({ problem }) => problem).join('; ');

describe('recursion-of-thought', () => {
  it('computes the rules once and batches the 32 parts of a problem that is divided five times', async () => {
    const count = await tokenCounter(STORIES);
    const whole = rehearse(1, 2 ** DEPTH);
    const nodes = flat(whole);
    const script = Object.fromEntries(
      nodes.map((node) => [node.problem, node.parts.length > 0 ? [divided(node), node.answer] : [node.answer]]),
    );
    const input = { rules: RULES, problem: whole.problem, depth: DEPTH, script };
    const before = await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('recursion-of-thought', input);
    assert.deepEqual(output, whole);
    assert.equal(output.answer, '528');

    const stats = await countersOf();
    const rules = count.begin(`${RULES}\n`);
    const tokensByNode = nodes.map((node) => {
      const problem = count.continuing(`Problem: ${node.problem}\n`);
      const answer = count.continuing('Answer:', ` ${node.answer}\n`);
      if (node.parts.length === 0) return problem + answer;
      return problem + count.continuing('Parts:', ` ${divided(node)}\n`, answers(node)) + answer;
    });
    const sum = tokensByNode.reduce((a, b) => a + b, 0);
    // Each fork computes the last token of the rules itself, but never the last token of its answer: these two cancel out.
    assert.equal(stats.tokens, rules - 1 + sum);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const withoutSharing = sum + nodes.length * rules;
    const text = `${withoutSharing} tokens without sharing, ${stats.tokens} with it`;
    assert.ok(withoutSharing > 1.4 * stats.tokens, text);
    await assertBatched(stats, () => callFunction('recursion-of-thought', input));
  });

  it('batches the answers of the 32 parts when the model writes them itself', async () => {
    const whole = rehearse(1, 2 ** DEPTH);
    const script = Object.fromEntries(
      flat(whole).map((node) => [node.problem, node.parts.length > 0 ? [divided(node)] : []]),
    );
    const input = { problem: whole.problem, depth: DEPTH, maxTokens: 32, script, seed: 2 };
    await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('recursion-of-thought', input);
    assert.equal(flat(output).length, 2 ** (DEPTH + 1) - 1);
    await assertBatched(await countersOf(), () => callFunction('recursion-of-thought', input));
  });

  it('divides a problem as the model replies, down to the given depth, and names the field of a bad input', async () => {
    const { output } = await callFunction('recursion-of-thought', {
      problem: 'The dog and the cat',
      depth: 2,
      // The longest list of parts has 163 characters.
      maxTokens: 164,
      seed: 1,
    });
    assert.equal(flat(output).length, 7);
    assert.deepEqual(await refusedInput('recursion-of-thought', { problem: 'x', depth: 9 }), {
      status: 422,
      field: '/depth',
    });
  });
});
