import type { Characters } from '../translate/characters.ts';
import {
  type Definitions,
  type Expression,
  type Language,
  type Members,
  sequence,
  text,
} from '../translate/expression.ts';
import { utf8 } from './utf8.ts';

/** Maximum sets of characters whose states one count remembers. */
const MAX_KNOWN_SETS = 10_000;

/**
 * The number of states of a grammar's automaton, found without making them. Every rule that the root reaches counts once, every language once,
 * and every member of an object once: a text passes the states of its members in one order.
 *
 * @param isShared true for definitions whose automata all grammars share, which do not count
 * @param limit where the count ends: the result is then any number above it
 */
export function countStates(
  grammar: Definitions,
  isShared: (definition: Expression) => boolean,
  limit: number,
): number {
  return new Counter(isShared, limit).of(grammar);
}

class Counter {
  readonly #isShared: (definition: Expression) => boolean;
  readonly #limit: number;
  readonly #languages = new Set<Language>();
  readonly #sets = new Map<string, number>();
  /** The rules that are reached and not counted yet. */
  readonly #pending: { readonly grammar: Definitions; readonly name: string }[] = [];
  /** The rules that are reached, by the grammar or language that defines them. */
  readonly #reached = new Map<Definitions, Set<string>>();
  #states = 0;

  constructor(isShared: (definition: Expression) => boolean, limit: number) {
    this.#isShared = isShared;
    this.#limit = limit;
  }

  of(grammar: Definitions): number {
    this.#reach(grammar, grammar.root);
    for (let next = this.#pending.pop(); next && this.#states <= this.#limit; next = this.#pending.pop()) {
      const definition = next.grammar.rules.get(next.name);
      if (!definition) throw new Error(`the rule ${next.name} is not defined`);
      if (!this.#isShared(definition)) this.#states += 2 + this.#inner(definition, next.grammar);
    }
    return this.#states;
  }

  #reach(grammar: Definitions, name: string): void {
    const names = this.#reached.get(grammar) ?? new Set();
    this.#reached.set(grammar, names);
    if (!names.has(name)) this.#pending.push({ grammar, name });
    names.add(name);
  }

  /** States between the first and the last one of an expression. */
  #inner(expression: Expression, grammar: Definitions): number {
    switch (expression.kind) {
      case 'text':
        return Math.max(0, Buffer.byteLength(expression.text) - 1);
      case 'class':
        return this.#tails(expression.set);
      case 'sequence':
        return this.#sequence(expression.parts, grammar);
      case 'choice':
        return this.#choice(expression.options, grammar);
      case 'repeat':
        return this.#repeat(expression, grammar);
      case 'members':
        return this.#inner(sequenceOfMembers(expression.members), grammar);
      case 'rule':
        this.#reach(grammar, expression.name);
        return 0;
      case 'language':
        if (!this.#languages.has(expression.language)) this.#reach(expression.language, expression.language.root);
        this.#languages.add(expression.language);
        return 0;
    }
  }

  /** States before the last bytes of characters; characters with equal last bytes share them. */
  #tails(set: Characters): number {
    if ((set.at(-1)?.[1] ?? 0) < 0x80) return 0;
    const key = set.join();
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const tails = new Set<string>();
    for (const ranges of utf8(set)) for (let at = 1; at < ranges.length; at += 1) tails.add(ranges.slice(at).join(' '));
    if (this.#sets.size < MAX_KNOWN_SETS) this.#sets.set(key, tails.size);
    return tails.size;
  }

  #sequence(parts: readonly Expression[], grammar: Definitions): number {
    return parts.reduce((states, part) => states + this.#inner(part, grammar), Math.max(0, parts.length - 1));
  }

  /** Options that begin with the same text share its states. */
  #choice(options: readonly Expression[], grammar: Definitions): number {
    const beginnings: string[] = [];
    let states = 0;
    for (const option of options) {
      const [first, ...rest] = option.kind === 'sequence' ? option.parts : [option];
      if (first?.kind === 'text') {
        beginnings.push(Buffer.from(first.text).toString('latin1'));
        states += this.#sequence(rest, grammar);
      } else states += this.#inner(option, grammar);
    }
    beginnings.sort();
    return beginnings.reduce((all, own, at) => all + own.length - commonLength(own, beginnings[at - 1] ?? ''), states);
  }

  #repeat({ body, min, max }: Expression & { kind: 'repeat' }, grammar: Definitions): number {
    if (max === 0) return 0;
    const inner = this.#inner(body, grammar);
    const isEndless = max === Number.POSITIVE_INFINITY;
    const isCounted = min > 1 || (max > 1 && !isEndless);
    // The iterations of a bounded repetition call one rule for the body, unless it has no states of its own.
    const called = isCounted && body.kind !== 'rule' && body.kind !== 'language' && !isByte(body) ? 2 + inner : 0;
    const copied = isCounted || (min === 0 && isEndless) ? 0 : inner;
    const loop = isEndless ? 1 + inner : 0;
    return called + copied + loop + (isEndless ? min : Math.max(0, max - 1));
  }
}

/** True for an expression that matches exactly one byte, and so needs no states between its first and last one. */
export function isByte(expression: Expression): boolean {
  if (expression.kind === 'text') return expression.text.length === 1 && expression.text < '\x80';
  return expression.kind === 'class' && (expression.set.at(-1)?.[1] ?? 0x80) < 0x80;
}

/** The number of characters with which both texts begin. */
function commonLength(a: string, b: string): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a[length] === b[length]) length += 1;
  return length;
}

/** The states of members as a text passes them: each member once. */
function sequenceOfMembers({ named, other, separator }: Members): Expression {
  return sequence([
    separator,
    ...named.map(({ key, value }) => sequence([text(key), value])),
    ...(other ? [other] : []),
  ]);
}
