import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { characters, type Range } from '../translate/characters.ts';
import { choice, type Expression, type Grammar, oneOf, sequence, text } from '../translate/expression.ts';
import { buildAutomaton, countStates, type Rule, type State } from './automaton.ts';

test('the count of states is the number of states that the automaton makes', () => {
  const random = new Random(20);
  for (let round = 0; round < 500; round += 1) {
    const rules = new Map(['a', 'b', 'c'].map((name) => [name, randomExpression(random, 3)] as const));
    const grammar: Grammar = { root: 'a', rules };
    const made = statesOf(buildAutomaton(grammar));
    assert.equal(
      countStates(grammar, () => false, 1e9),
      made,
      JSON.stringify([...rules]),
    );
  }
});

test('the count ends at its limit', () => {
  const body = text('ab');
  const rules = new Map<string, Expression>(
    Array.from({ length: 100 }, (_, at) => [
      `${at}`,
      sequence([
        { kind: 'repeat', body, min: 0, max: 1000 },
        { kind: 'rule', name: `${(at + 1) % 100}` },
      ]),
    ]),
  );
  let looks = 0;
  const get = (name: string): Expression | undefined => {
    looks += 1;
    return rules.get(name);
  };
  const counted = { root: '0', rules: { get } };
  assert.ok(countStates(counted, () => false, 10_000) > 10_000);
  assert.ok(looks < 20, `${looks} rules were counted`);
});

function randomExpression(random: Random, depth: number): Expression {
  const own = (): Expression => randomExpression(random, depth - 1);
  const many = (): Expression[] => Array.from({ length: 1 + random.integer(0, 2) }, own);
  const word = (): Expression => text(random.pick(['a', 'ab', 'abc', 'ä', '€x', '😀']));
  const leaves = [
    word,
    () => oneOf(characters(...Array.from({ length: 1 + random.integer(0, 2) }, () => randomRange(random)))),
    (): Expression => ({ kind: 'rule', name: random.pick(['a', 'b', 'c']) }),
  ];
  const branches = [
    () => sequence(many()),
    () => choice([...many(), word(), sequence([word(), own()])]),
    (): Expression => {
      const min = random.integer(0, 3);
      return { kind: 'repeat', body: own(), min, max: random.pick([Number.POSITIVE_INFINITY, min, min + 1, min + 3]) };
    },
  ];
  return random.pick(depth === 0 ? leaves : [...leaves, ...branches, ...branches])();
}

function randomRange(random: Random): Range {
  const from = random.pick([0x20, 0x7f, 0x400, 0x1000, 0xe000, 0x1f600]);
  return [from, from + random.pick([0, 1, 30, 900, 5000])];
}

function statesOf({ start, end }: Rule): number {
  const seen = new Set<State>([start, end]);
  for (const state of seen) {
    state.open();
    for (const { target } of state.bytes) seen.add(target);
    for (const target of state.empty) seen.add(target);
    for (const { rule, target } of state.calls) for (const each of [rule.start, rule.end, target]) seen.add(each);
  }
  return seen.size;
}
