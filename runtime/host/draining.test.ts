import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Draining } from './draining.ts';

test('Draining records for each host when its drain began and ended', () => {
  const draining = new Draining();
  draining.set(new Set(['a']), 10);
  draining.set(new Set(['a', 'b']), 20);
  assert.deepEqual([draining.of('a'), draining.of('b'), draining.of('c')], [{ since: 10 }, { since: 20 }, undefined]);
  draining.set(new Set(['b']), 30);
  draining.set(new Set(['b']), 40);
  assert.deepEqual(draining.of('a'), { since: 10, until: 30 });
  assert.deepEqual([draining.isDrained('a'), draining.isDrained('b')], [false, true]);
  draining.set(new Set(['a']), 50);
  assert.deepEqual([draining.of('a'), draining.of('b')], [{ since: 50 }, { since: 20, until: 50 }]);
});
