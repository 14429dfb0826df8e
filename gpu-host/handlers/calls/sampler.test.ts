import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallFault } from '../../memory/fault.ts';
import type { Sampler } from '../../protocol/calls.ts';
import { candidatesWanted, checkSampler, drawsOf } from './checks.ts';

const GREEDY: Sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };

test('temperature 0 draws nothing and ignores the other settings', () => {
  const sampler = { ...GREEDY, topP: Number.NaN, minP: 2, seed: 9 };
  checkSampler(sampler);
  assert.equal(candidatesWanted(sampler, 256), 1);
  assert.equal(drawsOf(sampler, [4]), undefined);
});

test('invalid samplers are refused with the name and value of the invalid field', () => {
  const bad: [Partial<Sampler>, RegExp][] = [
    [{ temperature: Number.NaN }, /temperature NaN/],
    [{ temperature: -1 }, /temperature -1/],
    [{ temperature: Number.POSITIVE_INFINITY }, /temperature Infinity/],
    [{ topP: 0 }, /top-p 0/],
    [{ topP: Number.NaN }, /top-p NaN/],
    [{ topP: 1.5 }, /top-p 1.5/],
    [{ minP: -0.5 }, /min-p -0.5/],
    [{ minP: Number.NaN }, /min-p NaN/],
  ];
  for (const [change, message] of bad) {
    assert.throws(
      () => checkSampler({ ...GREEDY, temperature: 1, ...change }),
      (error: CallFault) => {
        assert.equal(error.error.tag, 'invalid-argument');
        assert.match(error.message, message);
        return true;
      },
    );
  }
});

test('a sampler wants its top-k, at most as many candidates as the host lists', () => {
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1 }, 256), 256);
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1, topK: 40 }, 256), 40);
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1, topK: 5000 }, 256), 256);
});
