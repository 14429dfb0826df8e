import type { Characters, Range } from '../translate/characters.ts';
import {
  type Definitions,
  EMPTY,
  type Expression,
  type Grammar,
  type GrammarError,
  type Language,
  type Lengths,
  type Members,
  maxStates,
  sequence,
  text,
  tooLarge,
} from '../translate/expression.ts';
import { JSON_CHARACTER, SHARED_RULES } from '../translate/json.ts';

let lastState = 0;

/** A state of a rule's automaton, with its transitions: on a byte, on the empty text, and through a call of another rule. */
export class State {
  readonly id: number;
  /** True for the final state of a rule, which has no transitions. */
  readonly isEnd: boolean;
  /** True within a JSON string that grammars share: see `Places`. */
  readonly isShared: boolean;
  readonly bytes: ByteEdge[] = [];
  readonly empty: State[] = [];
  readonly calls: Call[] = [];
  #make: (() => void) | undefined;

  constructor(isEnd: boolean, isShared: boolean) {
    lastState += 1;
    this.id = lastState;
    this.isEnd = isEnd;
    this.isShared = isShared;
  }

  /** Lets `make` add the transitions only when `open` is called: most states of a grammar are never reached. */
  later(make: () => void): void {
    this.#make = make;
  }

  /** Makes the transitions if they are not made yet. Must be called before the transitions are read. */
  open(): void {
    const make = this.#make;
    if (make === undefined) return;
    this.#make = undefined;
    make();
  }
}

interface ByteEdge {
  readonly from: number;
  readonly to: number;
  readonly target: State;
}

interface Call {
  readonly rule: Rule;
  /** The state after the called rule has ended. */
  readonly target: State;
}

/** A finite automaton over UTF-8 bytes that may call other automata. */
export interface Rule {
  readonly start: State;
  readonly end: State;
}

/** Maximum states of one grammar, which take about 100 MB. */
const MAX_STATES = 400_000;
const QUOTE = 0x22;
/** Maximum remembered states of JSON strings, which take about 15 MB. At the maximum, `stringState` forgets all of them. */
const MAX_STRING_STATES = 40_000;

/**
 * The automaton of a grammar's root (Thompson's construction for each rule). States are made when a text reaches them; a bounded repetition
 * takes a state for each possible iteration.
 *
 * @throws GrammarError `limit-exceeded` for more than 400,000 states
 */
export function buildAutomaton(grammar: Grammar): Rule {
  const isShared = (definition: Expression): boolean => jsonAutomata().has(definition);
  // The bound is quick to find; only a grammar that may be too large is counted exactly.
  if (maxStates(grammar.rules.values()) > MAX_STATES && countStates(grammar, isShared, MAX_STATES) > MAX_STATES)
    throw tooManyStates();
  return new Builder(grammar, 'own').rule(grammar.root);
}

function tooManyStates(): GrammarError {
  return tooLarge(`the grammar takes more than ${MAX_STATES} states; use fewer or smaller repetitions with bounds`);
}

/** The state in a JSON string with `min` to `max` more characters before its closing quote. */
export class StringState extends State {
  readonly min: number;
  readonly max: number;

  constructor(min: number, max: number) {
    super(false, true);
    this.min = min;
    this.max = max;
    this.later(() => {
      if (min === 0) this.bytes.push({ from: QUOTE, to: QUOTE, target: STRING_END });
      if (max > 0) this.calls.push({ rule: character(), target: stringState(Math.max(0, min - 1), max - 1) });
    });
  }
}

/** The end of every JSON string's rule, which all grammars share. */
const STRING_END = new State(true, true);
const stringStates = new Map<string, StringState>();

function stringState(min: number, max: number): StringState {
  const key = `${min} ${max}`;
  const known = stringStates.get(key);
  if (known) return known;
  const made = new StringState(min, max);
  if (stringStates.size >= MAX_STRING_STATES) stringStates.clear();
  stringStates.set(key, made);
  return made;
}

/** A JSON string of `min` to `max` characters. Strings with different bounds share the states in which equally many characters may follow. */
export function stringRule({ min, max, isBegun }: Lengths): Rule {
  if (isBegun) return { start: stringState(min, max), end: STRING_END };
  const start = new State(false, true);
  start.bytes.push({ from: QUOTE, to: QUOTE, target: stringState(min, max) });
  return { start, end: STRING_END };
}

let characterRule: Rule | undefined;

function character(): Rule {
  const name = 'character';
  characterRule ??= new Builder({ root: name, rules: new Map([[name, JSON_CHARACTER]]) }, 'shared').rule(name);
  return characterRule;
}

/** The automata of languages, each made once. */
const languages = new WeakMap<Language, Rule>();

function languageAutomaton(language: Language): Rule {
  const known = languages.get(language);
  if (known) return known;
  const { lengths, isString, root } = language;
  const made = lengths ? stringRule(lengths) : new Builder(language, isString ? 'shared' : 'own').rule(root);
  languages.set(language, made);
  return made;
}

/** The automata of the rules for arbitrary JSON, keyed by rule definition. All grammars share these automata. */
let json: ReadonlyMap<Expression, Rule> | undefined;

function jsonAutomata(): ReadonlyMap<Expression, Rule> {
  if (json) return json;
  json = new Map(
    SHARED_RULES.flatMap((rules) => {
      const builder = new Builder({ root: 'value', rules }, 'own');
      return [...rules.values()].map((definition) => [definition, builder.make(definition)] as const);
    }),
  );
  return json;
}

/** The use of an automaton: 'own' to match one grammar or any JSON, 'shared' to match the JSON strings of all grammars. */
type Use = 'own' | 'shared';

class Builder {
  readonly #grammar: Definitions;
  readonly #use: Use;
  readonly #rules = new Map<string, Rule>();
  /** Number of the states made so far. */
  #states = 0;

  constructor(grammar: Definitions, use: Use) {
    this.#grammar = grammar;
    this.#use = use;
  }

  rule(name: string): Rule {
    const known = this.#rules.get(name);
    if (known) return known;
    const definition = this.#grammar.rules.get(name);
    if (!definition) throw new Error(`the rule ${name} is not defined`);
    const rule = jsonAutomata().get(definition) ?? this.make(definition);
    this.#rules.set(name, rule);
    return rule;
  }

  /** Makes an unnamed rule that matches `definition`. */
  make(definition: Expression): Rule {
    const rule = { start: this.#state(), end: this.#state(true) };
    rule.start.later(() => this.#connect(definition, rule.start, rule.end));
    return rule;
  }

  #state(isEnd = false): State {
    this.#states += 1;
    if (this.#states > MAX_STATES) throw tooManyStates();
    return new State(isEnd, this.#use === 'shared');
  }

  /** Adds the paths of `expression` from one state to the other. */
  #connect(expression: Expression, from: State, to: State): void {
    switch (expression.kind) {
      case 'text':
        this.#text(expression.text, from, to);
        return;
      case 'class':
        this.#characters(expression.set, from, to);
        return;
      case 'sequence':
        this.#sequence(expression.parts, 0, from, to);
        return;
      case 'choice':
        this.#choice(expression.options, from, to);
        return;
      case 'repeat':
        this.#repeat(expression.body, expression.min, expression.max, from, to);
        return;
      case 'members':
        this.#members(expression.members, from, to);
        return;
      case 'rule':
        from.calls.push({ rule: this.rule(expression.name), target: to });
        return;
      case 'language':
        from.calls.push({ rule: languageAutomaton(expression.language), target: to });
    }
  }

  #text(text: string, from: State, to: State): void {
    const bytes = Buffer.from(text);
    if (bytes.length === 0) from.empty.push(to);
    let at = from;
    for (const [index, byte] of bytes.entries()) {
      const target = index === bytes.length - 1 ? to : this.#state();
      at.bytes.push({ from: byte, to: byte, target });
      at = target;
    }
  }

  /** Characters with equal last bytes share the states of those bytes. */
  #characters(set: Characters, from: State, to: State): void {
    const tails = new Map<string, State>([['', to]]);
    const stateBefore = (tail: readonly ByteRange[]): State => {
      const key = tail.join(' ');
      const known = tails.get(key);
      if (known) return known;
      const state = this.#state();
      tails.set(key, state);
      const [first, ...rest] = tail;
      if (first) state.bytes.push({ from: first[0], to: first[1], target: stateBefore(rest) });
      return state;
    };
    for (const [first, ...rest] of utf8(set)) {
      if (first) from.bytes.push({ from: first[0], to: first[1], target: stateBefore(rest) });
    }
  }

  /** Adds the paths of the parts from `index` on. */
  #sequence(parts: readonly Expression[], index: number, from: State, to: State): void {
    const part = parts[index];
    if (part === undefined) {
      from.empty.push(to);
      return;
    }
    const isLast = index === parts.length - 1;
    const target = isLast ? to : this.#state();
    if (!isLast) target.later(() => this.#sequence(parts, index + 1, target, to));
    this.#connect(part, from, target);
  }

  /** Options that begin with the same text share its states, so that a list of thousands of words is followed as one path. */
  #choice(options: readonly Expression[], from: State, to: State): void {
    const nodes = new Map<State, Map<number, State>>();
    for (const option of options) {
      const [first, ...rest] = option.kind === 'sequence' ? option.parts : [option];
      if (first?.kind !== 'text') {
        this.#connect(option, from, to);
        continue;
      }
      let at = from;
      for (const byte of Buffer.from(first.text)) {
        const targets = nodes.get(at) ?? new Map<number, State>();
        nodes.set(at, targets);
        const target = targets.get(byte) ?? this.#state();
        if (!targets.has(byte)) at.bytes.push({ from: byte, to: byte, target });
        targets.set(byte, target);
        at = target;
      }
      this.#sequence(rest, 0, at, to);
    }
  }

  #repeat(body: Expression, min: number, max: number, from: State, to: State): void {
    const isCounted = min > 1 || (max > 1 && max !== Number.POSITIVE_INFINITY);
    // Build the body of a bounded repetition once and call it from each iteration: copies would multiply in nested repetitions.
    const isCalled = isCounted && body.kind !== 'rule' && body.kind !== 'language' && !isByte(body);
    const rule = isCalled ? this.make(body) : undefined;
    this.#iterate({ body, rule }, min, max, from, to);
  }

  /**
   * Adds the paths of an object's members. There is a state for each set of members that a text has written: like all states, it is made when a
   * text reaches it.
   */
  #members(members: Members, from: State, to: State): void {
    const { named, isOrdered, other, needsOther, least, most, separator } = members;
    const keys = named.map(({ key }) => Buffer.from(key));
    const maxCount = most === Number.POSITIVE_INFINITY ? Math.max(least, 1) : most;
    const allBits = (1n << BigInt(named.length)) - 1n;
    const known = new Map<string, State>();
    const tails = new Map<string, Rule>();
    const tailOf = (index: number, offset: number): Rule => {
      const name = `${index} ${offset}`;
      const made = tails.get(name) ?? this.#tail(keys[index]?.subarray(offset), named[index]?.value);
      tails.set(name, made);
      return made;
    };
    /** Adds the paths of members with equal keys up to `offset`. */
    const begin = (at: State, candidates: readonly Candidate[], offset: number): void => {
      for (const [byte, group] of Map.groupBy(candidates, ({ index }) => keys[index]?.[offset] ?? 0)) {
        const target = this.#state();
        at.bytes.push({ from: byte, to: byte, target });
        const [first, ...others] = group;
        if (first && others.length === 0)
          target.later(() =>
            target.calls.push({ rule: tailOf(first.index, offset + 1), target: stateAfter(first.after) }),
          );
        else target.later(() => begin(target, group, offset + 1));
      }
    };
    const stateAfter = (written: Written): State => {
      const name = `${written.bits} ${written.otherLeft} ${written.count}`;
      const made = known.get(name);
      if (made) return made;
      const state = this.#state();
      known.set(name, state);
      state.later(() => open(state, written));
      return state;
    };
    const open = (state: State, { bits, requiredLeft, otherLeft, count: before }: Written): void => {
      if (requiredLeft === 0 && before >= least) state.empty.push(to);
      const count = Math.min(maxCount, before + 1);
      // The members that are still required need their places, too.
      const hasRoom = before + requiredLeft < most;
      const candidates: Candidate[] = [];
      for (const [index, { isRequired }] of named.entries()) {
        const bit = 1n << BigInt(index);
        if ((bits & bit) !== 0n) continue;
        // In order, a member also takes the places of the optional ones before it. Enough members must stay for `least`.
        const staysEnough = !isOrdered || other !== undefined || before + named.length - index >= least;
        const bitsAfter = isOrdered ? (bit << 1n) - 1n : bits | bit;
        if (staysEnough && (isRequired || hasRoom))
          candidates.push({
            index,
            after: { bits: bitsAfter, requiredLeft: requiredLeft - (isRequired ? 1 : 0), otherLeft, count },
          });
        if (isOrdered && isRequired) break;
      }
      const isOtherNext = !isOrdered || requiredLeft === otherLeft;
      const otherMember = isOtherNext && (hasRoom || otherLeft > 0) ? other : undefined;
      if (candidates.length === 0 && !otherMember) return;
      const start = before === 0 ? state : this.#state();
      if (before > 0) this.#connect(separator, state, start);
      begin(start, candidates, 0);
      const after = { bits: isOrdered ? allBits : bits, requiredLeft: requiredLeft - otherLeft, otherLeft: 0, count };
      if (otherMember) this.#connect(otherMember, start, stateAfter(after));
    };
    const otherLeft = needsOther ? 1 : 0;
    const requiredCount = named.filter(({ isRequired }) => isRequired).length;
    open(from, { bits: 0n, requiredLeft: requiredCount + otherLeft, otherLeft, count: 0 });
  }

  /** The rule of the rest of a member. */
  #tail(key = Buffer.alloc(0), value: Expression = EMPTY): Rule {
    const rule = { start: this.#state(), end: this.#state(true) };
    rule.start.later(() => {
      let at = rule.start;
      for (const byte of key) {
        const target = this.#state();
        at.bytes.push({ from: byte, to: byte, target });
        at = target;
      }
      this.#connect(value, at, rule.end);
    });
    return rule;
  }

  /** Adds the paths of the remaining iterations: at least `min`, at most `max`. */
  #iterate(iteration: Iteration, min: number, max: number, from: State, to: State): void {
    const { body, rule } = iteration;
    if (min === 0 && max === Number.POSITIVE_INFINITY) {
      const loop = this.#state();
      from.empty.push(loop);
      loop.empty.push(to);
      this.#connect(body, loop, loop);
      return;
    }
    if (min === 0) from.empty.push(to);
    if (max === 0) return;
    const isLast = max === 1;
    const target = isLast ? to : this.#state();
    if (!isLast) target.later(() => this.#iterate(iteration, Math.max(0, min - 1), max - 1, target, to));
    if (rule) from.calls.push({ rule, target });
    else this.#connect(body, from, target);
  }
}

/** The members that a text has written. */
interface Written {
  /** A bit for each named member. */
  readonly bits: bigint;
  /** Number of the required members that are not written yet, with the undeclared one. */
  readonly requiredLeft: number;
  /** 1 if an undeclared member is still required, else 0. */
  readonly otherLeft: number;
  /** Number of all members, as far as the bounds need it. */
  readonly count: number;
}

/** A named member that may come next. */
interface Candidate {
  readonly index: number;
  readonly after: Written;
}

/** The body of a repetition. If the iterations call the body instead of copying it, `rule` matches the body. */
interface Iteration {
  readonly body: Expression;
  readonly rule: Rule | undefined;
}

/** The bytes from the first number to the second, both included. */
type ByteRange = Range;

/** Last characters that take 1, 2, 3 and 4 bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * Sequences of byte ranges that together match exactly the UTF-8 of the characters of a set (Thompson's construction, as in RE2's
 * `Compiler::AddRuneRangeUTF8`).
 */
export function utf8(set: Characters): readonly (readonly ByteRange[])[] {
  return set.flatMap(([from, to]) =>
    LAST_OF_LENGTH.flatMap((last, index) => {
      const first = index === 0 ? 0 : (LAST_OF_LENGTH[index - 1] ?? 0) + 1;
      return from > last || to < first ? [] : split(Math.max(from, first), Math.min(to, last), index);
    }),
  );
}

/** Sequences for the characters from `from` to `to`. Each takes a first byte and `rest` further bytes, which hold six bits of it each. */
function split(from: number, to: number, rest: number): ByteRange[][] {
  for (let tail = 1; tail <= rest; tail += 1) {
    const mask = (1 << (6 * tail)) - 1;
    // One sequence is enough if both ends share the bits before the last `tail` bytes, or if these bytes take all values.
    if ((from & ~mask) === (to & ~mask)) continue;
    if ((from & mask) !== 0) return [...split(from, from | mask, rest), ...split((from | mask) + 1, to, rest)];
    if ((to & mask) !== mask) return [...split(from, (to & ~mask) - 1, rest), ...split(to & ~mask, to, rest)];
  }
  const [low, high] = [encode(from, rest), encode(to, rest)];
  return [low.map((byte, index): ByteRange => [byte, high[index] ?? byte])];
}

/** UTF-8 of a character: the first byte tells the number of further bytes, and each further byte begins with the bits 10. */
function encode(code: number, rest: number): number[] {
  if (rest === 0) return [code];
  const lead = (0xff00 >> (rest + 1)) & 0xff;
  const tail = Array.from({ length: rest }, (_, index) => 0x80 | ((code >> (6 * (rest - 1 - index))) & 0x3f));
  return [lead | (code >> (6 * rest)), ...tail];
}

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
function isByte(expression: Expression): boolean {
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
