import assert from 'node:assert/strict';
import { it } from 'node:test';
import { markerTokenOf } from './marker.ts';

it('finds a call by the special token that begins it, also when more text belongs to its marker', () => {
  const [end, calls, text] = [2, 5, 1501];
  const find = (...ids: number[]) => markerTokenOf(ids, (token) => token !== text, [end]);
  assert.equal(find(calls), calls);
  assert.equal(find(calls, text), calls);
  assert.equal(find(calls, text, calls), calls);
  assert.equal(find(text, calls), undefined);
  assert.equal(find(), undefined);
  // Every text ends with this token, those without a call, too.
  assert.equal(find(end, text), undefined);
});
