import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Failure } from './failure.ts';
import { parseSpan } from './format.ts';

describe('a span of time on the command line', () => {
  it('is a number and a unit', () => {
    assert.deepEqual(
      ['0s', '90s', '15m', '12h', '30d', '2w'].map(parseSpan),
      [0, 90_000, 900_000, 43_200_000, 2_592_000_000, 1_209_600_000],
    );
    // `toISOString` throws for a time that a `Date` cannot hold.
    assert.ok(new Date(Date.now() + parseSpan('9999999d')).toISOString());
    for (const wrong of ['', '5', 'd', '-1d', '1.5h', '1y', '1d2h', '9999999999s', '99999999d']) {
      assert.throws(() => parseSpan(wrong), Failure, wrong);
    }
  });
});
