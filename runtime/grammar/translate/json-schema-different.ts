import { choice, EMPTY, type Expression, type Language, sequence } from './expression.ts';
import { type JsonRules, literal } from './json.ts';
import { maxStates } from './states.ts';

const MANY = Number.POSITIVE_INFINITY;
/** Up to this many values come in any order; more come in the order of their list. */
const MAX_SHUFFLED = 7;

/** Fewest and most items of an array; `most` may be Infinity. */
export interface Bounds {
  readonly least: number;
  readonly most: number;
}

/**
 * The language of arrays that hold some of the values, each at most once. It has a rule for each place of an array (see
 * `inAnyOrder` and `inOrder`). A rule is made when it is read.
 *
 * @param values at least as many as the fewest items
 */
export function differentValues(json: JsonRules, values: readonly unknown[], bounds: Bounds): Language {
  const items = values.map((value) => sequence([literal(value), json.space]));
  const rules = items.length <= MAX_SHUFFLED ? inAnyOrder(json, items, bounds) : inOrder(json, items, bounds);
  const root = json.within('[', ']', { kind: 'rule', name: '0.0' });
  const get = (name: string): Expression | undefined => {
    if (name === 'root') return root;
    const [first, second] = name.split('.').map(Number);
    return second === undefined ? json.shared.get(name) : rules.rule(first ?? 0, second);
  };
  const states = rules.count * maxStates(items.map((item) => json.withComma(item)));
  return { root: 'root', rules: { get }, isString: false, size: rules.count, states };
}

interface PlaceRules {
  /** Returns the rule for the text that follows a place. */
  rule(first: number, count: number): Expression;
  /** Number of places. */
  readonly count: number;
}

/** Rules by place. A place's first number has a bit for each item before it; its second number counts these items. */
function inAnyOrder(json: JsonRules, items: readonly Expression[], { least, most }: Bounds): PlaceRules {
  const rule = (usedItemBits: number, count: number): Expression => {
    const options = items.flatMap((item, index) => {
      if (count >= most || (usedItemBits >> index) & 1) return [];
      const nextRule: Expression = { kind: 'rule', name: `${usedItemBits | (1 << index)}.${count + 1}` };
      return [sequence([count === 0 ? item : json.withComma(item), nextRule])];
    });
    return choice([...(count >= least ? [EMPTY] : []), ...options]);
  };
  return { rule, count: 2 ** items.length };
}

/** Rules by place. A place's first number is the index of the next value; its second number counts the items so far, as far as the bounds need. */
function inOrder(json: JsonRules, items: readonly Expression[], { least, most }: Bounds): PlaceRules {
  const highest = most === MANY ? Math.max(least, 1) : Math.min(most, items.length);
  const canReachLeast = (index: number, count: number): boolean => count + items.length - index >= least;
  const ruleAt = (index: number, count: number): Expression => ({
    kind: 'rule',
    name: `${index}.${Math.min(count, highest)}`,
  });
  const rule = (index: number, count: number): Expression => {
    const item = items[index];
    if (item === undefined) return EMPTY;
    const mayTakeItem = count < most && canReachLeast(index + 1, count + 1);
    return choice([
      ...(mayTakeItem ? [sequence([count === 0 ? item : json.withComma(item), ruleAt(index + 1, count + 1)])] : []),
      ...(canReachLeast(index + 1, count) ? [ruleAt(index + 1, count)] : []),
    ]);
  };
  return { rule, count: (items.length + 1) * (highest + 1) };
}
