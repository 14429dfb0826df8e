import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkSize, LONGEST_CHECK, sizeOf } from './check-size.ts';

test('every value counts, and so does what is long in it', () => {
  assert.equal(sizeOf(1), 1);
  assert.equal(sizeOf({ a: [1, 'x', null], b: {} }), 6);
  assert.equal(sizeOf('x'.repeat(640)), 11);
  assert.equal(sizeOf({ ['n'.repeat(640)]: 0 }), 12);
  let deep: unknown = 0;
  for (let i = 0; i < 100_000; i++) deep = [deep];
  assert.equal(sizeOf(deep), 100_001, 'however deeply it is nested');
});

test('counting stops where the number says enough', () => {
  const size = checkSize(
    1000,
    Array.from({ length: 1_000_000 }, () => ({})),
  );
  assert.ok(size > LONGEST_CHECK);
  const proxied = new Proxy({}, { ownKeys: () => assert.fail('looked at') });
  assert.ok(checkSize(LONGEST_CHECK, [proxied, proxied, proxied]) > LONGEST_CHECK);
  assert.equal(checkSize(10, [1, 2]), 30);
});
