import { type Characters, characters } from './characters.ts';
import { choice, EMPTY, type Expression, sequence } from './expression.ts';
import { Inexpressible } from './json-schema-object.ts';
import type { Automaton } from './regular.ts';
import { maxStates } from './states.ts';

/** Maximum characters of a text. */
const MAX_LENGTH = 3000;
/** Pairs that masks reach for each number of characters of a text, on average. */
const AHEAD = 4;
/** Maximum pairs of a state and a number of characters. */
const MAX_PAIRS = 1_000_000;

/** Rules for pairs of a state of an automaton and the number of characters before it. A rule is made when it is asked for. */
interface CountedRules {
  readonly first: Expression;
  get(name: string): Expression | undefined;
  /** An estimate of the number of states of the automata of the rules that texts reach. */
  readonly states: number;
}

/**
 * Rules for the texts of an automaton that have `min` to `max` characters; undefined if there are none. Unlike the product of two automata,
 * these rules cost little until a text reaches them.
 *
 * @param expressionOfSet makes the expression of a set of characters
 * @throws Inexpressible if there are too many pairs
 */
export function countedRules(
  { accepts, moves }: Automaton,
  min: number,
  max: number,
  expressionOfSet: (set: Characters) => Expression,
): CountedRules | undefined {
  const isBounded = max < Number.POSITIVE_INFINITY;
  // Without a bound, a text that is longer than this passes a cycle, and cutting the cycle out leaves a shorter text of at least `min` characters.
  const longest = isBounded ? max : min + accepts.length;
  if (longest > MAX_LENGTH || longest * accepts.length > MAX_PAIRS)
    throw new Inexpressible('the lengths are too large');
  const lengths = lengthsOf({ accepts, moves }, longest);
  const steps = moves.map((own) =>
    [...Map.groupBy(own, ({ target }) => target)].map(([target, group]) => ({
      target,
      set: expressionOfSet(characters(...group.map(({ from, to }) => [from, to] as const))),
    })),
  );
  const known = new Map<string, Expression>();

  /** True if a text that is in the state after `count` characters can still end with an allowed length. */
  function canEnd(state: number, count: number): boolean {
    for (let more = Math.max(0, min - count); more <= longest - count; more += 1) {
      if (lengths[more * accepts.length + state] === 1) return true;
    }
    return false;
  }

  function ruleOf(state: number, count: number): Expression {
    // Without a bound, the count matters up to the minimum only.
    const next = isBounded ? count + 1 : Math.min(min, count + 1);
    const options = count === max ? [] : (steps[state] ?? []).filter(({ target }) => canEnd(target, next));
    return choice([
      ...(accepts[state] && count >= min ? [EMPTY] : []),
      ...options.map(({ target, set }) => sequence([set, { kind: 'rule', name: `${target}.${next}` }])),
    ]);
  }

  function get(name: string): Expression | undefined {
    const made = known.get(name);
    if (made) return made;
    const [state, count] = name.split('.').map(Number);
    if (state === undefined || count === undefined) return undefined;
    const rule = ruleOf(state, count);
    known.set(name, rule);
    return rule;
  }

  if (!canEnd(0, 0)) return undefined;
  const states = maxStates(steps.map((own) => choice(own.map(({ set }) => sequence([set, set])))));
  // A text passes one state for each number of characters, and masks look a few characters ahead.
  const perCount = Math.min(states, (AHEAD * states) / accepts.length);
  return { first: { kind: 'rule', name: '0.0' }, get, states: states + perCount * ((isBounded ? max : min) + 1) };
}

/** For each length and each state: 1 if the automaton accepts a text of that length from there. */
function lengthsOf({ accepts, moves }: Automaton, longest: number): Uint8Array {
  const states = accepts.length;
  const found = new Uint8Array((longest + 1) * states);
  accepts.forEach((accepted, state) => {
    if (accepted) found[state] = 1;
  });
  const targets = moves.map((own) => [...new Set(own.map(({ target }) => target))]);
  for (let length = 1; length <= longest; length += 1) {
    const [here, before] = [length * states, (length - 1) * states];
    for (let state = 0; state < states; state += 1) {
      if (targets[state]?.some((target) => found[before + target] === 1)) found[here + state] = 1;
    }
  }
  return found;
}
