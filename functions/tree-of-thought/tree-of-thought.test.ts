import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  assertBatched,
  callFunction,
  countersOf,
  refusedInput,
  STORIES,
  tracedAsInterpreted,
} from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const PROBLEM = 'Use 4 9 10 13 to make 24.';
const PROMPTS = { propose: 'Step:', judge: 'Can it be 24?', answer: 'So:' };
const [STEPS, BREADTH, KEEP] = [3, 3, 2];

/** A state of the Game of 24: the thoughts that led to it, and the numbers left. */
interface State {
  readonly thoughts: readonly string[];
  readonly left: readonly number[];
}

interface Move {
  readonly thought: string;
  readonly left: readonly number[];
}

function moves(left: readonly number[]): Move[] {
  return left.flatMap((a, i) =>
    left.flatMap((b, j) => {
      if (i === j) return [];
      const rest = left.filter((_, k) => k !== i && k !== j);
      const results: [string, number][] = [
        [`${a}-${b}`, a - b],
        ...(i < j ? [[`${a}*${b}`, a * b] as [string, number]] : []),
      ];
      return results.map(([text, value]) => ({ thought: `${text}=${value}`, left: [...rest, value] }));
    }),
  );
}

const solvable = (left: readonly number[]): boolean =>
  left.length === 1 ? left[0] === 24 : moves(left).some((move) => solvable(move.left));
const verdict = ({ left }: State): string => (solvable(left) ? 'sure' : 'impossible');

/** Replies of a good model in the order of the requests. The useful proposal of each step is the last one. */
function rehearse(): {
  replies: string[];
  best: readonly string[];
  lines: string[];
  verdicts: string[];
  naive: string[][];
} {
  const replies: string[] = [];
  const lines: string[] = [];
  const verdicts: string[] = [];
  const naive: string[][] = [];
  let states: State[] = [{ thoughts: [], left: [4, 9, 10, 13] }];
  for (let step = 0; step < STEPS; step++) {
    const next = states.flatMap(({ thoughts, left }) => {
      // Equal numbers make equal thoughts, whose equal tokens the host's own cache would find.
      const all = [...new Map(moves(left).map((move) => [move.thought, move])).values()].sort(
        (a, b) => Number(solvable(a.left)) - Number(solvable(b.left)),
      );
      const shown = [...all.slice(0, BREADTH - 1), all.at(-1)!];
      // The last steps have fewer moves than branches.
      return Array.from({ length: BREADTH }, (_, i) => shown[i % shown.length]!).map((move) => ({
        thoughts: [...thoughts, move.thought],
        left: move.left,
      }));
    });
    for (const { thoughts } of next) {
      lines.push(thoughts.at(-1)!);
      naive.push([...thoughts]);
    }
    verdicts.push(...next.map(verdict));
    replies.push(...next.map(({ thoughts }) => thoughts.at(-1)!), ...next.map(verdict));
    states = next.sort((a, b) => Number(solvable(b.left)) - Number(solvable(a.left))).slice(0, KEEP);
  }
  return { replies: [...replies, 'done'], best: states[0]!.thoughts, lines, verdicts, naive };
}

describe('tree-of-thought', () => {
  it('finds the best path, computes the shared part of states once, and decodes in joint batches', async () => {
    const count = await tokenCounter(STORIES);
    const { replies, best, lines, verdicts, naive } = rehearse();
    const input = { problem: PROBLEM, steps: STEPS, breadth: BREADTH, keep: KEEP, ...PROMPTS, script: replies };
    const before = await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('tree-of-thought', input);
    assert.deepEqual([output.thoughts, output.value, output.answer], [best, 20, 'done']);
    assert.equal(messages.length, lines.length);

    const stats = await countersOf();
    const said = (thought: string) => count.continuing(PROMPTS.propose, ` ${thought}\n`);
    const judged = (word: string) => count.continuing(PROMPTS.judge, ` ${word}\n`);
    const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);
    const root = count.begin(`${PROBLEM}\n`);
    const answer = count.continuing(PROMPTS.answer, ' done\n');
    // Each continuation of a context computes the context's last token.
    assert.equal(stats.tokens, root - 1 + sum(lines.map(said)) + sum(verdicts.map(judged)) + answer);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const alone = sum(naive.map((path, i) => 2 * (root + sum(path.map(said))) + judged(verdicts[i]!)));
    assert.ok(alone > 4 * stats.tokens, `${alone} tokens without sharing, ${stats.tokens} with sharing`);

    await assertBatched(stats, () => callFunction('tree-of-thought', input));
  });

  it('finds the same traced as interpreted, with fewer steps of the device', async () => {
    const input = { problem: 'The dog is sad.', steps: 2, breadth: 4, maxTokens: 8, temperature: 0 };
    // Eight thoughts at once share enough steps even where a busy machine lets some share none.
    const output = await tracedAsInterpreted('tree-of-thought', input, 0.7);
    assert.equal(output.thoughts.length, 2);
    const seeded = await tracedAsInterpreted('tree-of-thought', {
      ...input,
      temperature: 0.8,
      seed: 5,
      breadth: 2,
      steps: 3,
    });
    assert.equal(seeded.thoughts.length, 3);
  });

  it("works with the model's own replies, and names the field of a bad input", async () => {
    const { output, messages } = await callFunction('tree-of-thought', {
      problem: 'The dog is sad.',
      steps: 2,
      maxTokens: 12,
      seed: 3,
    });
    assert.equal(output.thoughts.length, 2);
    const values = messages
      .map((message) => JSON.parse(message))
      .filter(({ step }) => step === 2)
      .map(({ value }) => value);
    assert.equal(output.value, Math.max(...values));
    assert.deepEqual(await refusedInput('tree-of-thought', { problem: 'x', breadth: 0 }), {
      status: 422,
      field: '/breadth',
    });
  });
});
