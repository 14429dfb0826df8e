import {
  ANY,
  type Characters,
  characters,
  charactersOf,
  codePoint,
  complement as otherCharacters,
} from './characters.ts';
import { choice, EMPTY, type Expression, NEVER, oneOf, type RuleSet, sequence } from './expression.ts';
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
  return minimal(
    explored<readonly number[]>(
      closureOf(nfa, [0]),
      (states) => states.join(),
      (states) => states.includes(1),
      (states) =>
        disjointRanges(states.flatMap((state) => nfa.moves[state] ?? [])).map(({ from, to, targets }) => ({
          from,
          to,
          target: closureOf(nfa, targets),
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
      throw new Inexpressible('it is not regular');
  }
}

/** The states reachable without a character, sorted. */
function closureOf({ empty }: Nfa, states: readonly number[]): readonly number[] {
  const reached = new Set(states);
  const pending = [...states];
  for (let state = pending.pop(); state !== undefined; state = pending.pop()) {
    for (const target of empty[state] ?? []) {
      if (reached.has(target)) continue;
      reached.add(target);
      pending.push(target);
    }
  }
  return [...reached].sort((a, b) => a - b);
}

/** Splits the moves into disjoint ranges. All characters of a range lead to the same states. */
function disjointRanges(moves: readonly { readonly set: Characters; readonly target: number }[]) {
  const ends = new Set<number>();
  for (const { set } of moves) {
    for (const [from, to] of set) {
      ends.add(from);
      ends.add(to + 1);
    }
  }
  const sortedEnds = [...ends].sort((a, b) => a - b);
  return sortedEnds.slice(0, -1).flatMap((from, index) => {
    const to = (sortedEnds[index + 1] ?? from + 1) - 1;
    const targets = moves.flatMap(({ set, target }) =>
      set.some(([low, high]) => from >= low && to <= high) ? [target] : [],
    );
    return targets.length === 0 ? [] : [{ from, to, targets: [...new Set(targets)] }];
  });
}

function jointMoves(mine: readonly Move[], theirs: readonly Move[]) {
  const commonMoves: { from: number; to: number; target: readonly [number, number] }[] = [];
  for (const a of mine) {
    for (const b of theirs) {
      const [from, to] = [Math.max(a.from, b.from), Math.min(a.to, b.to)];
      if (from <= to) commonMoves.push({ from, to, target: [a.target, b.target] });
    }
  }
  return commonMoves;
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

/** Removes the states that lead to no accepted text, and merges equal states (Moore's partition refinement). */
function minimal({ accepts, moves }: Automaton): Automaton {
  const live = liveStates({ accepts, moves });
  const liveMoves = moves.map((own) => own.filter(({ target }) => live.has(target)));
  // The first groups: dead states, accepting states and the others.
  let groups: readonly number[] = accepts.map((accepted, state) => {
    if (!live.has(state)) return 0;
    return accepted ? 1 : 2;
  });
  for (let count = 0; ; ) {
    const groupByKey = new Map<string, number>();
    const refined = groups.map((group, state) => {
      const signature = sorted((liveMoves[state] ?? []).map((move) => ({ ...move, target: groups[move.target] ?? 0 })))
        .map(({ from, to, target }) => `${from}-${to}-${target}`)
        .join();
      const key = `${group} ${signature}`;
      const index = groupByKey.get(key) ?? groupByKey.size;
      groupByKey.set(key, index);
      return index;
    });
    groups = refined;
    if (groupByKey.size === count) break;
    count = groupByKey.size;
  }
  return explored<number>(
    0,
    (state) => String(groups[state]),
    (state) => accepts[state] === true,
    (state) => liveMoves[state] ?? [],
  );
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
