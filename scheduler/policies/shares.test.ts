import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { InferletShare, Shares } from './shares.ts';

describe('shares of a pool', () => {
  it('the first tenant gets half of the pool, and each later one a quarter while there is room', () => {
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

  it('`leave` returns an amount to the pool', () => {
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

  it('a tenant that returns a part of its amount keeps holding the rest', () => {
    const shares = new Shares(8);
    shares.add('a', 3);
    shares.leave('a', 2);
    shares.add('b', 3);
    assert.ok(shares.enter('a', 1));
    assert.ok(!shares.fits('a', 1), 'the tenant holds a quarter of the pool again');
  });
});

describe('the share of an inferlet', () => {
  it('the amount that an inferlet holds counts for its tenant until the amount is returned or the share is closed', () => {
    const shares = new Shares(8);
    const [one, other] = [new InferletShare(shares, 'a'), new InferletShare(shares, 'a')];
    one.add(3);
    other.add(1);
    assert.ok(!one.fits(1));
    one.add(-1);
    assert.equal(shares.total, 3);
    one.close();
    assert.equal(shares.total, 1);
    one.add(2);
    assert.equal(shares.total, 1, '`add` after `close` counts nothing');
    shares.add('b', 3);
    assert.ok(other.fits(1));
    assert.ok(!other.fits(2));
    assert.ok(!shares.fits('a', 2), 'the tenant still holds the amount of its other inferlet');
  });

  it('an inferlet may hold its guaranteed amount, whatever the other inferlets of the tenant take', () => {
    const shares = new Shares(8);
    shares.add('a', 8);
    const share = new InferletShare(shares, 'a', 3);
    assert.ok(share.fits(3));
    share.add(2);
    assert.ok(share.fits(1));
    assert.ok(!share.fits(2));
  });
});
