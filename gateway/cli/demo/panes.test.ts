import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fits, sideBySide, wrap } from './screen.ts';

test('wrapped lines fit and hold every word in order', () => {
  const words = fc.array(fc.stringMatching(/^[a-z]{1,30}$/), { maxLength: 40, size: 'max' });
  fc.assert(
    fc.property(words, fc.integer({ min: 1, max: 20 }), (list, width) => {
      const lines = wrap(list.join(' '), width);
      assert.ok(lines.every((line) => line.length <= width));
      assert.equal(lines.join('').replaceAll(' ', ''), list.join(''));
    }),
    { seed: 21 },
  );
  assert.deepEqual(wrap('a dog ran', 5), ['a dog', 'ran']);
});

test('two panes have equal heights, and a long text shows its end', () => {
  const left = { title: 'left', text: 'one two three four', figures: '1 s' };
  const right = { title: 'right', text: 'one', figures: '2 s' };
  assert.deepEqual(sideBySide(left, right, 15, 2), [
    'left     right',
    '──────   ──────',
    'three    one',
    'four',
    '1 s      2 s',
  ]);
  // Two columns of 24 characters and a gap of 3 take 51.
  assert.deepEqual([fits(50), fits(51)], [false, true]);
});
