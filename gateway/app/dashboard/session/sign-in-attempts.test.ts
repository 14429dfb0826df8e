import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { SignInAttempts } from './sessions.ts';

const OPTIONS = { burst: 3, refillMs: 1000, maxAddresses: 4 };

describe('sign-in attempts', () => {
  it('are bounded for each address and refilled with time', () => {
    const attempts = new SignInAttempts(OPTIONS);
    assert.deepEqual(
      [1, 2, 3].map(() => attempts.take('a', 0)),
      [0, 0, 0],
    );
    assert.equal(attempts.take('a', 0), 1000);
    assert.equal(attempts.take('a', 400), 600, 'the returned wait is exact');
    assert.equal(attempts.take('b', 0), 0, 'another address has its own attempts');
    assert.equal(attempts.take('a', 1000), 0);
    assert.equal(attempts.take('a', 1000), 1000);
  });

  it('never exceed the burst plus the refill', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(900), { maxLength: 60, size: 'max' }), (gaps) => {
        const attempts = new SignInAttempts(OPTIONS);
        let now = 0;
        let allowed = 0;
        for (const gap of gaps) {
          now += gap;
          if (attempts.take('a', now) === 0) allowed += 1;
          assert.ok(allowed <= OPTIONS.burst + now / OPTIONS.refillMs);
        }
      }),
      { seed: 9 },
    );
  });

  it('are remembered for a bounded number of addresses, the latest ones', () => {
    const attempts = new SignInAttempts(OPTIONS);
    for (let i = 0; i < OPTIONS.burst; i += 1) attempts.take('last', 0);
    for (const address of ['b', 'c', 'd']) attempts.take(address, 0);
    assert.ok(attempts.take('last', 0) > 0);
    for (const address of ['e', 'f', 'g', 'h']) attempts.take(address, 0);
    assert.equal(attempts.take('last', 0), 0, 'the oldest address is forgotten');
  });
});
