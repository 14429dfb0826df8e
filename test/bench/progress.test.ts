import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { secondsLeft } from './progress.ts';

describe('time left of a run', () => {
  const rest = [
    { name: 'a', seconds: 20 },
    { name: 'b', seconds: 40 },
  ];

  it('is the earlier time of the remaining suites, scaled by the pace of those that have run', () => {
    assert.equal(secondsLeft([], rest), 60);
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], rest), 90);
    assert.equal(
      secondsLeft(
        [
          { expected: 10, seconds: 15 },
          { expected: 30, seconds: 25 },
        ],
        rest,
      ),
      60,
    );
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], []), 0);
  });

  it('is unknown without an earlier time of each remaining suite; a finished suite without one sets no pace', () => {
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], [...rest, { name: 'c' }]), undefined);
    assert.equal(secondsLeft([{ expected: undefined, seconds: 500 }], rest), 60);
  });
});
