import {
  ANY,
  type Characters,
  characters,
  charactersOf,
  codePoint,
  complement as otherCharacters,
} from './characters.ts';
import { choice, EMPTY, type Expression, maxStates, NEVER, oneOf, type RuleSet, sequence } from './expression.ts';
import { Inexpressible } from './json-schema-object.ts';
import { BoundedCache } from './known.ts';

/** Maximum states of an automaton. Subset construction and products may multiply them. */
const MAX_STATES = 3000;
/** Maximum states of the nondeterministic automaton of an expression. */
const MAX_NFA_STATES = 4 * MAX_STATES;
/** Maximum moves that the construction of one automaton visits, in about 50 ms. */
const MAX_WORK = 500_000;

interface Move {
  readonly from: number;
  readonly to: number;
  readonly target: number;
}

/** A deterministic finite automaton over characters. It starts in state 0; a character without a move leads nowhere. */
export interface Automaton {
  readonly accepts: readonly boolean[];
  /** For each state, its moves: sorted and disjoint. */
  readonly moves: readonly (readonly Move[])[];
}

/** Maximum states and moves of all automata in one cache: about 10 MB. */
const MAX_KNOWN = 200_000;

/** Makes a cache of automata, bounded by their states and moves. */
export function automatonCache(): BoundedCache<Automaton> {
  return new BoundedCache(MAX_KNOWN, ({ moves }) => moves.reduce((size, own) => size + own.length + 1, 0));
}

/** A nondeterministic automaton. */
interface Nfa {
  /** For each state, the states that it reaches without a character. */
  readonly empty: number[][];
  /** For each state, its moves by a character. */
  readonly moves: { readonly set: Characters; readonly target: number }[][];
}

/** The automaton of an expression without rules (Thompson's construction, then subsets). @throws Inexpressible if it is too large */
export function automatonOf(expression: Expression): Automaton {
  // State 0 is the start, and state 1 the end.
  const nfa: Nfa = { empty: [[], []], moves: [[], []] };
  connect(nfa, expression, 0, 1);
  const closures: (readonly number[] | undefined)[] = [];
  const closureOf = (state: number): readonly number[] => {
    const known = closures[state] ?? closure(nfa, state);
    closures[state] = known;
    return known;
  };
  return minimal(
    explored<readonly number[]>(
      closureOf(0),
      (states) => states.join(),
      (states) => states.includes(1),
      (states) =>
        disjointRanges(states.flatMap((state) => nfa.moves[state] ?? [])).map(({ from, to, targets }) => ({
          from,
          to,
          target: unionOf(targets.map(closureOf)),
        })),
    ),
  );
}

/** The automaton of the texts that both accept. @throws Inexpressible if it is too large */
export function intersection(a: Automaton, b: Automaton): Automaton {
  return trimmed(
    explored<readonly [number, number]>(
      [0, 0],
      (pair) => pair.join(),
      ([mine, theirs]) => a.accepts[mine] === true && b.accepts[theirs] === true,
      ([mine, theirs]) => jointMoves(a.moves[mine] ?? [], b.moves[theirs] ?? []),
    ),
  );
}

/**
 * The automaton of the texts of `head` followed by texts of `tail`. After a text of `head`, no character may both continue `head` and begin `tail`;
 * `tail` does not accept the empty text, and no text leads back to its start.
 */
export function concatenation(head: Automaton, tail: Automaton): Automaton {
  const offset = head.accepts.length;
  const tailMoves = tail.moves.map((own) => own.map((move) => ({ ...move, target: move.target + offset })));
  const firstMoves = tailMoves[0] ?? [];
  return {
    accepts: [...head.accepts.map(() => false), ...tail.accepts],
    moves: [
      ...head.moves.map((own, state) => (head.accepts[state] ? sorted([...own, ...firstMoves]) : own)),
      ...tailMoves,
    ],
  };
}

/** The automaton of the texts that the given one does not accept. */
export function complement({ accepts, moves }: Automaton): Automaton {
  const sinkState = accepts.length;
  const all = moves.map((each): Move[] => [
    ...each,
    ...otherCharacters(characters(...each.map(({ from, to }) => [from, to] as const))).map(([from, to]) => ({
      from,
      to,
      target: sinkState,
    })),
  ]);
  const stay = ANY.map(([from, to]) => ({ from, to, target: sinkState }));
  return trimmed({ accepts: [...accepts.map((accepted) => !accepted), true], moves: [...all.map(sorted), stay] });
}

/** The automaton of the texts of `min` to `max` characters. */
export function lengths(min: number, max: number): Automaton {
  const lastLength = max === Number.POSITIVE_INFINITY ? min : max;
  if (lastLength > MAX_STATES) throw new Inexpressible('the lengths are too large');
  const states = Array.from({ length: lastLength + 1 }, (_, length) => length);
  const nextLength = (length: number): number | null => {
    if (length < lastLength) return length + 1;
    return lastLength === max ? null : length;
  };
  return {
    accepts: states.map((length) => length >= min),
    moves: states.map((length) => {
      const target = nextLength(length);
      return target === null ? [] : ANY.map(([from, to]) => ({ from, to, target }));
    }),
  };
}

/**
 * The smallest automaton of a transition function. States with the same JSON text are one state.
 * @param next the state after a character of `alphabet[index]`; null when no text continues so
 */
export function automatonFrom<S>(
  start: S,
  accepts: (state: S) => boolean,
  alphabet: readonly Characters[],
  next: (state: S, index: number) => S | null,
): Automaton {
  return minimal(
    explored<S>(
      start,
      (state) => JSON.stringify(state),
      accepts,
      (state) =>
        alphabet.flatMap((set, index) => {
          const target = next(state, index);
          return target === null ? [] : set.map(([from, to]) => ({ from, to, target }));
        }),
    ),
  );
}

export function isEmpty({ accepts }: Automaton): boolean {
  return !accepts.includes(true);
}

export function matches({ accepts, moves }: Automaton, text: string): boolean {
  let state = 0;
  for (const character of text) {
    const code = codePoint(character);
    const move = moves[state]?.find(({ from, to }) => code >= from && code <= to);
    if (!move) return false;
    state = move.target;
  }
  return accepts[state] === true;
}

/** An expression for an automaton's texts, with a rule for each state. @param expressionOfSet makes the expression of a set of characters */
export function expressionOf(
  { accepts, moves }: Automaton,
  rules: RuleSet,
  expressionOfSet: (set: Characters) => Expression = oneOf,
): Expression {
  if (!accepts.includes(true)) return NEVER;
  const prefix = rules.unused('state');
  const reference = (state: number): Expression => ({ kind: 'rule', name: `${prefix}.${state}` });
  for (const [state, stateMoves] of moves.entries()) {
    const options = [...Map.groupBy(stateMoves, ({ target }) => target)].map(([target, group]) => {
      const set = expressionOfSet(characters(...group.map(({ from, to }) => [from, to] as const)));
      const isLast = accepts[target] === true && moves[target]?.length === 0;
      return isLast ? set : sequence([set, reference(target)]);
    });
    rules.define(`${prefix}.${state}`, choice([...(accepts[state] ? [EMPTY] : []), ...options]));
  }
  return reference(0);
}

function connect(nfa: Nfa, expression: Expression, from: number, to: number): void {
  const newState = (): number => {
    if (nfa.empty.length > MAX_NFA_STATES) throw new Inexpressible('its automaton is too large');
    nfa.empty.push([]);
    return nfa.moves.push([]) - 1;
  };
  const chain = (bodies: readonly Expression[], start: number, end: number): void => {
    let at = start;
    for (const body of bodies) {
      const next = newState();
      connect(nfa, body, at, next);
      at = next;
    }
    nfa.empty[at]?.push(end);
  };
  switch (expression.kind) {
    case 'text':
      chain(
        [...expression.text].map((character) => oneOf(charactersOf(character))),
        from,
        to,
      );
      return;
    case 'class':
      nfa.moves[from]?.push({ set: expression.set, target: to });
      return;
    case 'sequence':
      chain(expression.parts, from, to);
      return;
    case 'choice':
      for (const option of expression.options) {
        const start = newState();
        nfa.empty[from]?.push(start);
        connect(nfa, option, start, to);
      }
      return;
    case 'repeat': {
      let at = newState();
      nfa.empty[from]?.push(at);
      const step = (): void => {
        const next = newState();
        connect(nfa, expression.body, at, next);
        at = next;
      };
      for (let count = 0; count < expression.min; count += 1) step();
      if (expression.max === Number.POSITIVE_INFINITY) {
        const loop = newState();
        nfa.empty[at]?.push(loop);
        const back = newState();
        connect(nfa, expression.body, loop, back);
        nfa.empty[back]?.push(loop);
        at = loop;
      } else {
        for (let count = expression.min; count < expression.max; count += 1) {
          nfa.empty[at]?.push(to);
          step();
        }
      }
      nfa.empty[at]?.push(to);
      return;
    }
    case 'rule':
    case 'language':
    case 'members':
      throw new Inexpressible('it is not regular');
  }
}

/** The states with moves, and the end, that a state reaches without a character; sorted. The others make no difference. */
function closure({ empty, moves }: Nfa, from: number): readonly number[] {
  const reached = new Set([from]);
  const pending = [from];
  for (let state = pending.pop(); state !== undefined; state = pending.pop()) {
    for (const target of empty[state] ?? []) {
      if (reached.has(target)) continue;
      reached.add(target);
      pending.push(target);
    }
  }
  return [...reached].filter((state) => state === 1 || moves[state]?.length).sort((a, b) => a - b);
}

function unionOf(sets: readonly (readonly number[])[]): readonly number[] {
  if (sets.length === 1 && sets[0]) return sets[0];
  return [...new Set(sets.flat())].sort((a, b) => a - b);
}

/** Splits the moves into disjoint ranges. All characters of a range lead to the same states. */
function disjointRanges(moves: readonly { readonly set: Characters; readonly target: number }[]) {
  const changes = moves.flatMap(({ set, target }) =>
    set.flatMap(([from, to]) => [
      { at: from, target, by: 1 },
      { at: to + 1, target, by: -1 },
    ]),
  );
  changes.sort((a, b) => a.at - b.at);
  const ranges: { readonly from: number; readonly to: number; readonly targets: readonly number[] }[] = [];
  /** For each target, the number of moves that lead there. */
  const counts = new Map<number, number>();
  for (const [index, { at, target, by }] of changes.entries()) {
    const count = (counts.get(target) ?? 0) + by;
    if (count === 0) counts.delete(target);
    else counts.set(target, count);
    const next = changes[index + 1]?.at ?? at;
    if (next > at && counts.size > 0) ranges.push({ from: at, to: next - 1, targets: [...counts.keys()] });
  }
  return ranges;
}

/** The common characters of two states' moves, which are sorted. */
function jointMoves(mine: readonly Move[], theirs: readonly Move[]) {
  const commonMoves: { from: number; to: number; target: readonly [number, number] }[] = [];
  for (let i = 0, j = 0; ; ) {
    const [a, b] = [mine[i], theirs[j]];
    if (!a || !b) return commonMoves;
    const [from, to] = [Math.max(a.from, b.from), Math.min(a.to, b.to)];
    if (from <= to) commonMoves.push({ from, to, target: [a.target, b.target] });
    if (a.to < b.to) i += 1;
    else j += 1;
  }
}

/** The automaton of all states reachable from `start`. */
function explored<S>(
  start: S,
  keyOf: (state: S) => string,
  accepts: (state: S) => boolean,
  movesOf: (state: S) => readonly { readonly from: number; readonly to: number; readonly target: S }[],
): Automaton {
  const indexByKey = new Map([[keyOf(start), 0]]);
  const states = [start];
  const moves: Move[][] = [];
  let work = 0;
  for (let at = 0; at < states.length; at += 1) {
    const stateMoves = movesOf(states[at] as S).map(({ from, to, target }): Move => {
      const key = keyOf(target);
      const index = indexByKey.get(key) ?? states.push(target) - 1;
      indexByKey.set(key, index);
      return { from, to, target: index };
    });
    work += stateMoves.length + 1;
    if (states.length > MAX_STATES || work > MAX_WORK) throw new Inexpressible('its automaton is too large');
    moves.push(sorted(stateMoves));
  }
  return { accepts: states.map(accepts), moves };
}

/** Sorts the moves, and joins adjacent ranges that have the same target. */
function sorted(moves: readonly Move[]): Move[] {
  const merged: Move[] = [];
  for (const move of moves.toSorted((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last && last.target === move.target && last.to + 1 === move.from) {
      merged[merged.length - 1] = { ...last, to: move.to };
    } else merged.push(move);
  }
  return merged;
}

/** Removes the states that lead to no accepted text. */
function trimmed({ accepts, moves }: Automaton): Automaton {
  const live = liveStates({ accepts, moves });
  if (live.size === accepts.length) return { accepts, moves };
  return explored<number>(
    0,
    String,
    (state) => accepts[state] === true,
    (state) => (moves[state] ?? []).filter(({ target }) => live.has(target)),
  );
}

/**
 * Removes the states that lead to no accepted text, and merges equal states: the partition refinement of Valmari, "Fast brief practical DFA
 * minimization", Information Processing Letters 112 (2012).
 */
function minimal({ accepts, moves }: Automaton): Automaton {
  const live = liveStates({ accepts, moves });
  const liveMoves = moves.map((own) => own.filter(({ target }) => live.has(target)));
  const edges = labelled(liveMoves);
  const edgesInto = edges.reduce<number[][]>(
    (into, { target }, edge) => {
      into[target]?.push(edge);
      return into;
    },
    accepts.map(() => []),
  );
  const states = new Partition(accepts.length);
  const first = accepts.flatMap((accepted, state) => (accepted ? [state] : []));
  states.split(first);
  const groups = new Partition(edges.length);
  for (const group of Map.groupBy(edges.keys(), (edge) => edges[edge]?.label).values()) groups.split(group);
  // Each group of edges splits the states that such an edge leaves from the others; each part of the states splits the edges into it.
  for (let group = 0, part = 1; group < groups.count; group += 1) {
    states.split(groups.of(group).map((edge) => edges[edge]?.source ?? 0));
    for (; part < states.count; part += 1) groups.split(states.of(part).flatMap((state) => edgesInto[state] ?? []));
  }
  return explored<number>(
    0,
    (state) => String(states.indexOf(state)),
    (state) => accepts[state] === true,
    (state) => liveMoves[state] ?? [],
  );
}

interface Edge {
  readonly source: number;
  readonly target: number;
  /** Equal for edges by the same characters. */
  readonly label: number;
}

/** The moves, divided so that those of all states have equal or disjoint ranges. */
function labelled(moves: readonly (readonly Move[])[]): readonly Edge[] {
  const ends = [...new Set(moves.flatMap((own) => own.flatMap(({ from, to }) => [from, to + 1])))].sort(
    (a, b) => a - b,
  );
  const labelByStart = new Map(ends.map((end, label) => [end, label]));
  return moves.flatMap((own, source) =>
    own.flatMap(({ from, to, target }) => {
      const [low, high] = [labelByStart.get(from) ?? 0, labelByStart.get(to + 1) ?? 0];
      return Array.from({ length: high - low }, (_, offset): Edge => ({ source, target, label: low + offset }));
    }),
  );
}

/** The numbers below a bound, divided into parts. */
class Partition {
  /** The numbers, part by part. */
  readonly #elements: number[];
  /** For each number, its index in `#elements`. */
  readonly #places: number[];
  readonly #parts: number[];
  readonly #starts = [0];
  readonly #ends: number[];

  constructor(size: number) {
    this.#elements = Array.from({ length: size }, (_, index) => index);
    this.#places = [...this.#elements];
    this.#parts = this.#elements.map(() => 0);
    this.#ends = [size];
  }

  get count(): number {
    return this.#starts.length;
  }

  indexOf(element: number): number {
    return this.#parts[element] ?? 0;
  }

  of(part: number): readonly number[] {
    return this.#elements.slice(this.#starts[part], this.#ends[part]);
  }

  /** Divides each part into the elements of `marked` and the others. The smaller half becomes a new part. */
  split(marked: readonly number[]): void {
    const markedCounts = new Map<number, number>();
    for (const element of new Set(marked)) {
      const part = this.indexOf(element);
      const count = markedCounts.get(part) ?? 0;
      this.#swap(element, (this.#starts[part] ?? 0) + count);
      markedCounts.set(part, count + 1);
    }
    for (const [part, count] of markedCounts) {
      const [start, end] = [this.#starts[part] ?? 0, this.#ends[part] ?? 0];
      const middle = start + count;
      if (middle === end) continue;
      const isFirstSmaller = count <= end - middle;
      const made = this.#starts.push(isFirstSmaller ? start : middle) - 1;
      this.#ends.push(isFirstSmaller ? middle : end);
      if (isFirstSmaller) this.#starts[part] = middle;
      else this.#ends[part] = middle;
      for (const element of this.of(made)) this.#parts[element] = made;
    }
  }

  #swap(element: number, index: number): void {
    const [place, other] = [this.#places[element] ?? 0, this.#elements[index] ?? 0];
    this.#elements[place] = other;
    this.#places[other] = place;
    this.#elements[index] = element;
    this.#places[element] = index;
  }
}

function liveStates({ accepts, moves }: Automaton): ReadonlySet<number> {
  const sources = moves.map((): number[] => []);
  for (const [state, own] of moves.entries()) for (const { target } of own) sources[target]?.push(state);
  const live = new Set<number>();
  const pending = accepts.flatMap((accepted, state) => (accepted ? [state] : []));
  for (let state = pending.pop(); state !== undefined; state = pending.pop()) {
    if (live.has(state)) continue;
    live.add(state);
    pending.push(...(sources[state] ?? []));
  }
  return live;
}

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
