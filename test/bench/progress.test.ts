import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { secondsLeft } from './progress.ts';

describe('time left of a run', () => {
  const rest = [
    { name: 'a', seconds: 20 },
    { name: 'b', seconds: 40 },
  ];

  it('is the expected time of the remaining suites, times the ratio of actual to expected time of the finished ones', () => {
    assert.equal(secondsLeft([], rest), 20 + 40);
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], rest), ((20 + 40) * 15) / 10);
    assert.equal(
      secondsLeft(
        [
          { expected: 10, seconds: 15 },
          { expected: 30, seconds: 25 },
        ],
        rest,
      ),
      // The finished suites took 40 s, as expected.
      20 + 40,
    );
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], []), 0);
  });

  it('is unknown while a remaining suite has no expected time', () => {
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], [...rest, { name: 'c' }]), undefined);
  });

  it('ignores the actual time of a finished suite that had no expected time', () => {
    assert.equal(secondsLeft([{ expected: undefined, seconds: 500 }], rest), 20 + 40);
  });
});
