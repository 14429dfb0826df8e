import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { backAndForth, firstDifference, inTurn } from './rounds.ts';

describe('rounds', () => {
  it('start with each side in turn and return the results in the given order', async () => {
    for (const [round, expected] of ['abc', 'bca', 'cab', 'abc'].entries()) {
      let order = '';
      const side = (name: string) => async () => {
        order += name;
        return name;
      };
      assert.deepEqual(await inTurn(round, [side('a'), side('b'), side('c')]), ['a', 'b', 'c']);
      assert.equal(order, expected);
    }
  });

  it('go back and forth, and return the results in the given order', async () => {
    for (const [round, expected] of ['ab', 'ba'].entries()) {
      let order = '';
      const sides = ['a', 'b'].map((name) => async () => {
        order += name;
        return name;
      });
      assert.deepEqual(await backAndForth(round, sides), ['a', 'b']);
      assert.equal(order, expected);
    }
  });

  it('run one side at a time', async () => {
    let running = 0;
    const side = async () => {
      assert.equal(++running, 1);
      await new Promise((resolve) => setImmediate(resolve));
      running--;
    };
    await inTurn(1, [side, side, side]);
  });

  it('find the first difference of two token lists', () => {
    assert.equal(firstDifference([1, 2, 3], [1, 2, 3]), -1);
    assert.equal(firstDifference([1, 2, 3], [1, 5, 3]), 1);
    assert.equal(firstDifference([1, 2], [1, 2, 3]), 2);
    assert.equal(firstDifference([1, 2, 3], [1, 2]), 2);
    assert.equal(firstDifference([], []), -1);
  });
});
