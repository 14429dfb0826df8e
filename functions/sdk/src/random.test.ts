import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { uniform as deviceDraw } from '../../../gpu-host/backends/draw.ts';
import { drawOf, reseed, uniform } from './random.ts';

describe('drawOf', () => {
  it('gives the numbers of the device', () => {
    for (let i = 0; i < 500; i++) {
      const seed = Math.imul(i, 0x9e3779b1) >>> 0;
      assert.equal(drawOf(seed | 0, i * 37), deviceDraw(seed, i * 37));
    }
  });
});

describe('reseed', () => {
  it('keeps the seed for the first round and gives new draws in later rounds', () => {
    const seeds = [0, 1, 7, 0xffff_ffff];
    for (const seed of seeds) {
      assert.equal(reseed(seed, 0), seed);
      const draws = new Set<number>();
      for (let rounds = 0; rounds < 100; rounds++) {
        assert.equal(reseed(seed, rounds), reseed(seed, rounds));
        draws.add(uniform(reseed(seed, rounds), 68));
      }
      assert.equal(draws.size, 100);
    }
    assert.equal(new Set(seeds.map((seed) => reseed(seed, 3))).size, seeds.length);
  });
});
