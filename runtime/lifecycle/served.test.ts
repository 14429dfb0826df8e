import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Served } from './runner.ts';

test('Served counts an invocation once at each host of its models and encoders', () => {
  const served = new Served();
  const hostsOf = (...hosts: string[]) => new Map(hosts.map((name, i) => [`${i}`, { connection: { name } }]));
  const both = served.enter(hostsOf('a', 'a'), hostsOf('a', 'b'));
  const encodersOnly = served.enter(hostsOf(), hostsOf('b'));
  assert.deepEqual(served.counts, { a: 1, b: 2 });
  both[Symbol.dispose]();
  assert.deepEqual(served.counts, { b: 1 });
  encodersOnly[Symbol.dispose]();
  assert.deepEqual(served.counts, {});
});
