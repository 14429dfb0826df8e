import assert from 'node:assert/strict';
import { test } from 'node:test';
import { partsOf } from './long-text.ts';

const [TEXTS, CHARACTERS] = [256, 262_144];

test('partsOf keeps texts in order, within the limits of a call', () => {
  for (const more of [0, 100, 3000]) {
    for (const length of [0, 1, 500, 2000, 100_000, CHARACTERS - more]) {
      const all = Array.from({ length: 600 }, (_, i) => `${i}`.padEnd(length, '.').slice(0, CHARACTERS - more));
      const parts = partsOf(all, more);
      assert.deepEqual(
        parts.flatMap(({ texts }) => texts),
        all,
      );
      for (const { texts, cut } of parts) {
        assert.ok(texts.length > 0 && texts.length <= TEXTS && cut === 0);
        assert.ok(texts.reduce((sum, text) => sum + text.length + more, 0) <= CHARACTERS);
      }
      // The last text has the longest number, and no other text is longer.
      const longest = all.at(-1)?.length ?? 0;
      const textsPerCall = Math.min(TEXTS, Math.floor(CHARACTERS / Math.max(1, longest + more)));
      assert.ok(parts.length <= Math.ceil(all.length / textsPerCall) + 1);
    }
  }
});

test('partsOf cuts a text that no call can carry, and counts it', () => {
  const parts = partsOf(['a', 'b'.repeat(CHARACTERS + 1), 'c'], 10);
  assert.deepEqual(
    parts.map(({ texts, cut }) => [texts.map(({ length }) => length), cut]),
    [
      [[1], 0],
      [[CHARACTERS - 10], 1],
      [[1], 0],
    ],
  );
  assert.deepEqual(partsOf([], 10), [{ texts: [], cut: 0 }]);
});
