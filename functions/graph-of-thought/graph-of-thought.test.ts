import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertBatched, callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const TASK = 'Sort lists of numbers. Merge sorted lists. Improve what is not yet in order.';
const JUDGE = 'In order, 0 to 10?';
const PARTS = ['7 2 5', '9 1 4', '8 3 6', '30 20 10'];

interface Operation {
  readonly kind: string;
  readonly given: string;
  /** Replies and their scores. */
  readonly thoughts: readonly { readonly text: string; readonly score: number }[];
}

const sorted = (text: string) =>
  text
    .replaceAll(' | ', ' ')
    .split(' ')
    .sort((a, b) => Number(a) - Number(b));

/** Share of neighbouring pairs that are in ascending order, scaled to 0 to 10. */
function score(numbers: readonly string[]): number {
  const right = numbers.slice(1).filter((number, i) => Number(numbers[i]) < Number(number)).length;
  return Math.round((10 * right) / (numbers.length - 1));
}

/** Three scripted replies to an operation, one of them right. The merge of all parts has no right reply, so that `Improve` must correct it. */
function operate(kind: string, given: string): Operation {
  const right = sorted(given);
  const mergesAllParts = kind === 'Merge' && right.length === sorted(PARTS.join(' ')).length;
  const attempts = mergesAllParts
    ? [right.toReversed(), [...right.slice(1), '1'], [...right.slice(2), '1', '2']]
    : [right.toReversed(), right, [...right.slice(1), right[0]!]];
  return { kind, given, thoughts: attempts.map((numbers) => ({ text: numbers.join(' '), score: score(numbers) })) };
}

const best = ({ thoughts }: Operation) => thoughts.reduce((a, b) => (b.score > a.score ? b : a)).text;

describe('graph-of-thought', () => {
  it('sorts parts, merges them and improves the result, and computes common prefixes once', async () => {
    const count = await tokenCounter(STORIES);
    const parts = PARTS.map((part) => operate('Part', part));
    const [a, b, c, d] = parts.map(best);
    const merges = [operate('Merge', `${a} | ${b}`), operate('Merge', `${c} | ${d}`)];
    const last = operate('Merge', merges.map(best).join(' | '));
    const operations = [...parts, ...merges, last, operate('Improve', best(last))];
    assert.ok(last.thoughts.every((thought) => thought.score < 10));
    const script = operations.flatMap(({ thoughts }) => thoughts.flatMap(({ text, score }) => [text, `${score}`]));
    const input = { task: TASK, parts: PARTS, judge: JUDGE, script };
    const before = await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('graph-of-thought', input);
    const stats = await countersOf();
    assert.deepEqual(output, { text: '1 2 3 4 5 6 7 8 9 10 20 30', score: 10 });
    const key = ({ kind, given }: Operation) => `${kind} ${given}`;
    const ran = messages.map((message) => JSON.parse(message) as Operation);
    const byKey = (one: Operation, other: Operation) => (key(one) < key(other) ? -1 : 1);
    assert.deepEqual(ran.toSorted(byKey), operations.toSorted(byKey));

    const sum = (numbers: readonly number[]) => numbers.reduce((x, y) => x + y, 0);
    const task = count.begin(`${TASK}\n`);
    const asked = ({ kind, given }: Operation) => count.continuing(`${kind}: ${given}\nResult:`);
    const said = ({ thoughts }: Operation) =>
      thoughts.map(({ text, score }) => count.continuing(` ${text}\n`, JUDGE, ` ${score}\n`));
    // Each operation computes the task's last token again. Each thought computes the question's last token again, but not its own last token, so it
    // costs as many tokens as it has.
    const own = operations.map((operation) => asked(operation) - 1 + sum(said(operation)));
    assert.equal(stats.tokens, task - 1 + sum(own) + operations.length);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const alone = sum(
      operations.map((operation) => sum(said(operation).map((tokens) => task + asked(operation) + tokens))),
    );
    assert.ok(alone > 1.9 * stats.tokens, `${alone} tokens without sharing, ${stats.tokens} with sharing`);
    await assertBatched(stats, () => callFunction('graph-of-thought', input));
  });

  it("works with the model's own replies, and names the field of a bad input", async () => {
    const { output } = await callFunction('graph-of-thought', {
      task: 'Tell more.',
      parts: ['a dog', 'a cat', 'a bird'],
      branches: 2,
      maxTokens: 12,
      seed: 1,
    });
    assert.ok(output.score >= 0 && output.score <= 10);
    assert.deepEqual(await refusedInput('graph-of-thought', { task: 'x', parts: [] }), {
      status: 422,
      field: '/parts',
    });
  });
});
