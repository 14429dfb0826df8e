import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { uniform as deviceDraw } from '../../../../gpu-host/backends/draw.ts';
import { drawOf, reseed } from './samplers.ts';

describe('drawOf', () => {
  it('gives the numbers of the device, whether the seed is a signed or an unsigned number', () => {
    for (let i = 0; i < 500; i++) {
      const seed = Math.imul(i, 0x9e3779b1) >>> 0;
      const position = i * 37;
      assert.equal(drawOf(seed, position), deviceDraw(seed, position));
      assert.equal(drawOf(seed | 0, position), deviceDraw(seed, position));
    }
  });
});

describe('reseed', () => {
  it('keeps the seed until positions are renumbered, and gives a position another draw after each renumbering', () => {
    const seeds = [0, 1, 7, 0xffff_ffff];
    /** Any position. The draws at it are compared after 0 to 99 renumberings (`rounds`). */
    const reusedPosition = 68;
    for (const seed of seeds) {
      assert.equal(reseed(seed, 0), seed);
      const draws = new Set<number>();
      for (let rounds = 0; rounds < 100; rounds++) draws.add(drawOf(reseed(seed, rounds), reusedPosition));
      assert.equal(draws.size, 100);
    }
    assert.equal(new Set(seeds.map((seed) => reseed(seed, 3))).size, seeds.length);
  });
});
