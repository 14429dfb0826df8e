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

/** A state of the Game of 24: the thoughts that led to it, and the numbers that remain to be combined. */
interface State {
  readonly thoughts: readonly string[];
  readonly numbers: readonly number[];
}

/** One step of the game: replaces two numbers by their difference or product. */
interface Move {
  readonly thought: string;
  readonly numbers: readonly number[];
}

function moves(numbers: readonly number[]): Move[] {
  return numbers.flatMap((a, i) =>
    numbers.flatMap((b, j) => {
      if (i === j) return [];
      const rest = numbers.filter((_, k) => k !== i && k !== j);
      const results: [string, number][] = [
        [`${a}-${b}`, a - b],
        ...(i < j ? [[`${a}*${b}`, a * b] as [string, number]] : []),
      ];
      return results.map(([text, value]) => ({ thought: `${text}=${value}`, numbers: [...rest, value] }));
    }),
  );
}

const solvable = (numbers: readonly number[]): boolean =>
  numbers.length === 1 ? numbers[0] === 24 : moves(numbers).some((move) => solvable(move.numbers));
const verdict = ({ numbers }: State): string => (solvable(numbers) ? 'sure' : 'impossible');

/**
 * Plays the search with a perfect player. Returns its replies in the order in which the program asks for them, the thoughts of the best path, all
 * thoughts (`lines`) and `verdicts`, and for each thought the path to it (`naive`). Of a solvable state, the last proposal leads to a solution.
 */
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
  let states: State[] = [{ thoughts: [], numbers: [4, 9, 10, 13] }];
  for (let step = 0; step < STEPS; step++) {
    const next = states.flatMap(({ thoughts, numbers }) => {
      // Drop equal thoughts, which equal numbers make: their equal tokens would hit the host's prefix cache.
      const all = [...new Map(moves(numbers).map((move) => [move.thought, move])).values()].sort(
        (a, b) => Number(solvable(a.numbers)) - Number(solvable(b.numbers)),
      );
      const shown = [...all.slice(0, BREADTH - 1), all.at(-1)!];
      // A late step may have fewer moves than branches: repeat the moves then.
      return Array.from({ length: BREADTH }, (_, i) => shown[i % shown.length]!).map((move) => ({
        thoughts: [...thoughts, move.thought],
        numbers: move.numbers,
      }));
    });
    for (const { thoughts } of next) {
      lines.push(thoughts.at(-1)!);
      naive.push([...thoughts]);
    }
    verdicts.push(...next.map(verdict));
    replies.push(...next.map(({ thoughts }) => thoughts.at(-1)!), ...next.map(verdict));
    states = next.sort((a, b) => Number(solvable(b.numbers)) - Number(solvable(a.numbers))).slice(0, KEEP);
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
    // Only a continuation computes the last token of its context. So a continuation of n tokens computes n: that token, and all its own but the last.
    // The root has no context, so it computes one token less than it has.
    assert.equal(stats.tokens, root - 1 + sum(lines.map(said)) + sum(verdicts.map(judged)) + answer);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    // Without sharing, each thought takes two requests, one for the thought and one for its verdict. Each computes the root and the whole path.
    const alone = sum(naive.map((path, i) => 2 * (root + sum(path.map(said))) + judged(verdicts[i]!)));
    assert.ok(alone > 4 * stats.tokens, `${alone} tokens without sharing, ${stats.tokens} with sharing`);

    await assertBatched(stats, () => callFunction('tree-of-thought', input));
  });

  it('finds the same solution traced and interpreted, with fewer device steps when traced', async () => {
    const input = { problem: 'The dog is sad.', steps: 2, breadth: 4, maxTokens: 8, temperature: 0 };
    // The second step decodes eight thoughts at once. They share enough device steps even if a busy machine runs some of them alone.
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

  it("returns the best of the model's own thoughts, and names the field of a bad input", async () => {
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
