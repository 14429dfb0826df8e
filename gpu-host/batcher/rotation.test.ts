import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Rotation } from './rotation.ts';

test('tenants take turns, `mayGo` can exclude tenants, and removing an item keeps the order of the others', () => {
  const rotation = new Rotation<string>();
  assert.equal(rotation.isEmpty, true);
  for (const item of ['a1', 'a2', 'a3', 'b1', 'c1']) rotation.push(item.charAt(0), item);
  rotation.remove('a', 'never pushed');
  rotation.remove('a', 'a2');
  rotation.remove('b', 'b1');
  assert.equal(
    rotation.isDue((tenant) => tenant === 'b'),
    false,
  );
  assert.equal(
    rotation.isDue((tenant) => tenant === 'c'),
    true,
  );
  rotation.push('b', 'b2');
  const order = [rotation.shift((tenant) => tenant !== 'a'), rotation.shift(), rotation.shift(), rotation.shift()];
  assert.deepEqual(order, ['c1', 'a1', 'b2', 'a3']);
  assert.equal(rotation.isEmpty, true);
  assert.equal(rotation.shift(), undefined);
});
