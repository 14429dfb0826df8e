import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TurnCalls } from './store.ts';

/** `turns` doubles numbers and refuses odd ones; a call with a 13 fails. `calls` has the items of each call. */
function doubling(size: (item: number) => number) {
  const calls: number[][] = [];
  const turns = new TurnCalls<number, number>({
    size,
    call: async (items) => {
      calls.push([...items]);
      if (items.includes(13)) throw new Error('The call fails.');
      return items.map((item) => () => {
        if (item % 2 === 1) throw new Error(`${item} is odd.`);
        return 2 * item;
      });
    },
  });
  return { calls, turns };
}

const outcomes = async (answers: readonly Promise<number>[]) =>
  (await Promise.allSettled(answers)).map((answer) =>
    answer.status === 'fulfilled' ? answer.value : (answer.reason as Error).message,
  );

test('the items of a turn share calls of a bounded size, in order, and each gets its own answer', async () => {
  // Three items fill a call.
  const { calls, turns } = doubling(() => 1 / 3);
  const first = outcomes([2, 4, 5, 6].map((item) => turns.run(item)));
  await nextTurn();
  const second = outcomes([turns.run(8)]);
  assert.deepEqual([...(await first), ...(await second)], [4, 8, '5 is odd.', 12, 16]);
  assert.deepEqual(calls, [[2, 4, 5], [6], [8]]);
});

test('an item above the bound has its own call, and a failed call fails only its items', async () => {
  // The item 4 is above the bound. Two other items fill a call.
  const { calls, turns } = doubling((item) => (item === 4 ? 5 : 0.5));
  const answers = [2, 4, 13, 6, 8].map((item) => turns.run(item));
  assert.deepEqual(await outcomes(answers), [4, 8, 'The call fails.', 'The call fails.', 16]);
  assert.deepEqual(calls, [[2], [4], [13, 6], [8]]);
});
