import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { type Characters, characters, complement, intersection, union } from '../translate/characters.ts';
import { utf8 } from './automaton.ts';

const SEED = 3;
const EDGES = [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff];

function randomSet(random: Random): Characters {
  const end = () => (random.chance(0.5) ? random.pick(EDGES) : random.integer(0, 0x10ffff));
  return characters(
    ...Array.from({ length: random.integer(1, 3) }, () => [end(), end()].sort((a, b) => a - b) as [number, number]),
  );
}

function holds(set: Characters, code: number): boolean {
  return set.some(([from, to]) => code >= from && code <= to);
}

function countEncodings(set: Characters, bytes: Uint8Array): number {
  return utf8(set).filter(
    (ranges) =>
      ranges.length === bytes.length &&
      ranges.every(([from, to], at) => (bytes[at] ?? -1) >= from && (bytes[at] ?? 256) <= to),
  ).length;
}

describe('a set of characters', () => {
  it(`becomes byte sequences that match the UTF-8 of each of its characters once and nothing else, seed ${SEED}`, () => {
    const random = new Random(SEED);
    const encoder = new TextEncoder();
    for (let index = 0; index < 100; index += 1) {
      const set = randomSet(random);
      const codes = [
        ...EDGES,
        ...set.flatMap(([from, to]) => [from - 1, from, to, to + 1]),
        ...Array.from({ length: 200 }, () => random.integer(0, 0x10ffff)),
      ];
      for (const code of codes) {
        if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) continue;
        assert.equal(
          countEncodings(set, encoder.encode(String.fromCodePoint(code))),
          holds(set, code) ? 1 : 0,
          code.toString(16),
        );
      }
    }
    const everyCharacter = complement([]);
    for (const bytes of [
      [0x80],
      [0xc0, 0x80],
      [0xc1, 0xbf],
      [0xe0, 0x9f, 0x80],
      [0xed, 0xa0, 0x80],
      [0xf0, 0x8f, 0x80, 0x80],
      [0xf4, 0x90, 0x80, 0x80],
      [0xff],
    ]) {
      assert.equal(countEncodings(everyCharacter, Uint8Array.from(bytes)), 0, 'the bytes are not UTF-8');
    }
  });

  it(`has a union, an intersection and a complement, seed ${SEED}`, () => {
    const random = new Random(SEED);
    for (let index = 0; index < 200; index += 1) {
      const [a, b] = [randomSet(random), randomSet(random)];
      for (const code of [...EDGES, random.integer(0, 0xd7ff), random.integer(0xe000, 0x10ffff)]) {
        assert.equal(holds(union(a, b), code), holds(a, code) || holds(b, code));
        assert.equal(holds(intersection(a, b), code), holds(a, code) && holds(b, code));
        assert.equal(holds(complement(a), code), !holds(a, code));
      }
    }
  });
});
