import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Shares } from './shares.ts';

describe('shares of a pool', () => {
  it('give the first tenant half of the pool, and later ones a quarter', () => {
    const shares = new Shares(100);
    const countEntered = (tenant: string) => {
      let count = 0;
      while (shares.enter(tenant)) count++;
      return count;
    };
    assert.equal(countEntered('greedy'), 50);
    assert.equal(countEntered('second'), 25);
    assert.equal(countEntered('third'), 25);
    assert.equal(countEntered('fourth'), 0);
    assert.equal(shares.total, 100);
  });

  it('are returned by leave()', () => {
    const shares = new Shares(8);
    assert.ok(shares.enter('a', 4));
    assert.ok(!shares.enter('a', 1));
    shares.leave('a', 3);
    assert.ok(shares.enter('b', 2));
    assert.ok(shares.enter('a', 1));
    assert.equal(shares.total, 4);
    shares.leave('a', 2);
    shares.leave('b', 2);
    assert.equal(shares.total, 0);
  });
});
