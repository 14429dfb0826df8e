import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { recognizes } from '../testing/recognize.ts';
import { oneOf } from './expression.ts';
import { Inexpressible } from './json-schema-object.ts';
import { regex } from './regex.ts';
import { type Automaton, automatonOf, countedRules } from './regular.ts';

const SEED = 20261122;
const MANY = Number.POSITIVE_INFINITY;
const PATTERNS = ['[ab]*', '(ab)*', 'a(é|b){0,4}', '(aab?)+', 'a|ab|abb😀', '((ab){2}|é)*', ''];

function randomText(random: Random): string {
  return Array.from({ length: random.integer(0, 8) }, () => random.pick(['a', 'a', 'b', 'é', '😀', 'ab', 'aab'])).join(
    '',
  );
}

describe('counted rules', () => {
  it(`match exactly the automaton's texts of an allowed length, and always lead to an end, seed ${SEED}`, () => {
    const random = new Random(SEED);
    let [taken, emptyRuleSets] = [0, 0];
    for (const pattern of PATTERNS) {
      const whole = new RegExp(`^(?:${pattern})$`, 'u');
      for (let index = 0; index < 25; index += 1) {
        const min = random.integer(0, 6);
        const max = random.chance(0.3) ? MANY : min + random.integer(0, 5);
        const counted = countedRules(automatonOf(regex(pattern)), min, max, oneOf);
        const rules = { get: (name: string) => (name === 'root' ? counted?.first : counted?.get(name)) };
        // The name of the first rule: state 0 after 0 characters.
        if (counted) assertLeads(rules, '0.0');
        for (let each = 0; each < 20; each += 1) {
          const text = randomText(random);
          const length = [...text].length;
          const expected = whole.test(text) && length >= min && length <= max;
          const found = counted !== undefined && recognizes({ root: 'root', rules }, text);
          assert.equal(found, expected, `${pattern} of ${min} to ${max}: ${text}`);
          if (expected) taken += 1;
        }
        if (!counted) emptyRuleSets += 1;
      }
    }
    assert.ok(taken > 100 && emptyRuleSets > 0, `${taken} taken, ${emptyRuleSets} empty`);
  });

  it('are refused for too many lengths', () => {
    const automaton: Automaton = automatonOf(regex('a*'));
    assert.throws(() => countedRules(automaton, 0, 3001, oneOf), Inexpressible);
  });
});

/** Asserts that each rule that `first` reaches exists and has an option. */
function assertLeads(rules: { get(name: string): unknown }, first: string): void {
  const seen = new Set([first]);
  for (const name of seen) {
    const rule = JSON.stringify(rules.get(name));
    assert.notEqual(rule, JSON.stringify({ kind: 'choice', options: [] }), name);
    for (const [, called] of rule.matchAll(/"name":"([^"]+)"/g)) if (called) seen.add(called);
  }
}
