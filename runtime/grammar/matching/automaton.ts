import type { Characters } from '../translate/characters.ts';
import { type GrammarError, tooLarge } from '../translate/error.ts';
import {
  type Definitions,
  EMPTY,
  type Expression,
  type Grammar,
  type Language,
  type Lengths,
  type Members,
} from '../translate/expression.ts';
import { JSON_CHARACTER, SHARED_RULES } from '../translate/json.ts';
import { maxStates } from '../translate/states.ts';
import { type Rule, State } from './state.ts';
import { countStates, isByte } from './state-count.ts';
import { type ByteRange, utf8 } from './utf8.ts';

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
