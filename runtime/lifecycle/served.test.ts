import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Served } from './served.ts';

test('Served counts an invocation once at each host of its models and encoders', () => {
  const served = new Served();
  const on = (...hosts: string[]) => new Map(hosts.map((name, i) => [`${i}`, { connection: { name } }]));
  const both = served.enter(on('a', 'a'), on('a', 'b'));
  const encodersOnly = served.enter(on(), on('b'));
  assert.deepEqual(served.counts, { a: 1, b: 2 });
  both[Symbol.dispose]();
  assert.deepEqual(served.counts, { b: 1 });
  encodersOnly[Symbol.dispose]();
  assert.deepEqual(served.counts, {});
});
