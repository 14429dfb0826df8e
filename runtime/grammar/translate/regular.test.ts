import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { recognizes } from '../testing/recognize.ts';
import { RuleSet } from './expression.ts';
import { isMultiple, multiplesOf } from './json-schema-number.ts';
import { Inexpressible } from './json-schema-object.ts';
import { regexSearch } from './regex.ts';
import { type Automaton, automatonOf, complement, expressionOf, intersection, isEmpty, matches } from './regular.ts';

const SEED = 20261122;
const LETTERS = ['a', 'b', 'c', 'é', '😀', '"'];

/** A random pattern in which no alternative and no group is empty. */
function pattern(random: Random, depth: number): string {
  const atom = (): string => {
    if (depth > 0 && random.chance(0.3)) return `(${pattern(random, depth - 1)})`;
    return random.pick(['a', 'b', 'é', '😀', '.', '[ab]', '[^a]', '[b-é]']);
  };
  const part = (): string => atom() + random.pick(['', '', '', '*', '+', '?', '{2}', '{1,3}']);
  const option = (): string => Array.from({ length: random.integer(1, 3) }, part).join('');
  return Array.from({ length: random.integer(1, 2) }, option).join('|');
}

/** `source` is a pattern to search. `oracle` matches the same texts as a whole: V8's search misses some ends behind characters outside the BMP. */
function anchored(random: Random): { source: string; oracle: string } {
  const inner = pattern(random, 1);
  return random.pick([
    { source: inner, oracle: `^[^]*(?:${inner})[^]*$` },
    { source: `^(${inner})$`, oracle: `^(?:${inner})$` },
    { source: `^(${inner})`, oracle: `^(?:${inner})[^]*$` },
    { source: `(${inner})$`, oracle: `^[^]*(?:${inner})$` },
  ]);
}

function automatonIfSmall(source: string): Automaton | null {
  try {
    return automatonOf(regexSearch(source));
  } catch (error) {
    if (error instanceof Inexpressible) return null;
    throw error;
  }
}

function randomText(random: Random): string {
  return Array.from({ length: random.integer(0, 6) }, () => random.pick(LETTERS)).join('');
}

describe('automata', () => {
  it(`match as RegExp does, also joined and negated, seed ${SEED}`, () => {
    const random = new Random(SEED);
    let [taken, refused] = [0, 0];
    for (let index = 0; index < 200; index += 1) {
      const patterns = [anchored(random), anchored(random)];
      const sources = patterns.map(({ source }) => source);
      const [a, b] = sources.map(automatonIfSmall);
      if (!a || !b) continue;
      const [first, second] = patterns.map(({ oracle }) => new RegExp(oracle, 'u'));
      assert.ok(first && second);
      const difference = intersection(a, complement(b));
      const rules = new RuleSet(10_000, () => new Error('too many rules'));
      const grammar = rules.grammar(expressionOf(difference, rules));
      for (let each = 0; each < 30; each += 1) {
        const text = randomText(random);
        const expected = first.test(text) && !second.test(text);
        assert.equal(matches(a, text), first.test(text), `${sources[0]} on ${text}`);
        assert.equal(matches(difference, text), expected, `${sources} on ${text}`);
        if (isEmpty(difference)) assert.ok(!expected);
        else if (each < 5) assert.equal(recognizes(grammar, text), expected, `${sources} on ${text}`);
        if (expected) taken += 1;
        else refused += 1;
      }
    }
    assert.ok(taken > 500 && refused > 500, `${taken} taken, ${refused} refused`);
  });

  it('are refused when they grow too large', () => {
    assert.throws(() => automatonOf(regexSearch('a.{14}b')), Inexpressible);
  });

  it(`hold exactly the multiples of a number, seed ${SEED}`, () => {
    const random = new Random(SEED);
    for (const [digits, scale] of [
      [7, 0],
      [100, 0],
      [25, 2],
      [1, 2],
      [75, 4],
      [3, 1],
    ] as const) {
      const step = digits / 10 ** scale;
      const automaton = multiplesOf(step);
      for (let index = 0; index < 300; index += 1) {
        const places = random.integer(0, 5);
        const units = random.chance(0.5)
          ? BigInt(digits) * BigInt(random.integer(-999, 999)) * 10n ** BigInt(Math.max(0, places - scale))
          : BigInt(random.integer(-99_999, 99_999));
        // This choice affects only the mix of texts, because `isExpected` is computed exactly.
        const decimals = Math.max(places, units % 10n === 0n && places < scale ? scale : places);
        const text = written(units, decimals);
        // units / 10^decimals = n × digits / 10^scale for an integer n, in integers.
        const isExpected = (units * 10n ** BigInt(scale)) % (BigInt(digits) * 10n ** BigInt(decimals)) === 0n;
        assert.equal(matches(automaton, text), isExpected, `${text} of ${step}`);
        assert.equal(isMultiple(Number(text), step), isExpected, `${text} of ${step}`);
      }
    }
  });
});

function written(units: bigint, places: number): string {
  const digits = String(units < 0n ? -units : units).padStart(places + 1, '0');
  const sign = units < 0n ? '-' : '';
  return places === 0 ? `${sign}${digits}` : `${sign}${digits.slice(0, -places)}.${digits.slice(-places)}`;
}
