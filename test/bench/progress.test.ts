import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { secondsLeft } from './progress.ts';

describe('time left of a run', () => {
  const rest = [
    { name: 'a', seconds: 20 },
    { name: 'b', seconds: 40 },
  ];

  it('is what the rest took before, at the pace of the suites that have run', () => {
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

  it('is unknown while the time of a suite is, and takes no pace from one of unknown time', () => {
    assert.equal(secondsLeft([{ expected: 10, seconds: 15 }], [...rest, { name: 'c' }]), undefined);
    assert.equal(secondsLeft([{ expected: undefined, seconds: 500 }], rest), 60);
  });
});
