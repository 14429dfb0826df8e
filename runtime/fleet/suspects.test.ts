import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { movedAt, suspectsOf } from './policy.ts';

describe('the suspects of a lost sandbox', () => {
  const at = (movedAtMs: number) => ({ movedAtMs });

  it("are the guests that moved shortly before the sandbox's last message, or after it", () => {
    const [early, late, after] = [at(3999), at(4001), at(5100)];
    assert.deepEqual(suspectsOf([early, late, after], 5000, false), [late, after]);
  });

  it('are all guests when none moved recently, but none when the sandbox was suspended', () => {
    const sleepers = [at(0), at(10)];
    assert.deepEqual(suspectsOf(sleepers, 5000, false), sleepers);
    assert.deepEqual(suspectsOf(sleepers, 5000, true), []);
  });

  it('include the guest that moved last; there are none only if the sandbox was suspended or had no guests', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(10_000)), fc.nat(10_000), fc.boolean(), (movedTimes, heardAtMs, wasSuspended) => {
        const guests = movedTimes.map(at);
        const suspects = suspectsOf(guests, heardAtMs, wasSuspended);
        assert.ok(suspects.every((one) => guests.includes(one)));
        assert.ok(wasSuspended || suspects.length > 0 || guests.length === 0);
        // If there are suspects, the guest that moved last is one of them.
        const lastMoved = guests.toSorted((a, b) => b.movedAtMs - a.movedAtMs)[0];
        assert.ok(suspects.length === 0 || (lastMoved && suspects.includes(lastMoved)));
      }),
      { seed: 13 },
    );
  });

  it('are not affected by a message to a sandbox that has been silent for half a second', () => {
    assert.equal(movedAt(1000, 1400), 1400);
    assert.equal(movedAt(1000, 1600), null);
  });
});
