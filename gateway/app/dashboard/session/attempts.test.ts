import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Attempts } from './attempts.ts';

const OPTIONS = { burst: 3, refillMs: 1000, maxAddresses: 4 };

describe('attempts to sign in', () => {
  it('are bounded for each address and come back with time', () => {
    const attempts = new Attempts(OPTIONS);
    assert.deepEqual(
      [1, 2, 3].map(() => attempts.take('a', 0)),
      [0, 0, 0],
    );
    assert.equal(attempts.take('a', 0), 1000);
    assert.equal(attempts.take('a', 400), 600, 'the wait is true');
    assert.equal(attempts.take('b', 0), 0, 'another address is not concerned');
    assert.equal(attempts.take('a', 1000), 0);
    assert.equal(attempts.take('a', 1000), 1000);
  });

  it('never pass the burst plus what time gave back', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(900), { maxLength: 60 }), (gaps) => {
        const attempts = new Attempts(OPTIONS);
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

  it('remember only so many addresses, the latest ones', () => {
    const attempts = new Attempts(OPTIONS);
    for (let i = 0; i < OPTIONS.burst; i += 1) attempts.take('last', 0);
    for (const address of ['b', 'c', 'd']) attempts.take(address, 0);
    assert.ok(attempts.take('last', 0) > 0);
    for (const address of ['e', 'f', 'g', 'h']) attempts.take(address, 0);
    assert.equal(attempts.take('last', 0), 0, 'forgotten');
  });
});
