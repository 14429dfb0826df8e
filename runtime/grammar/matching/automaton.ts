import type { Characters } from '../translate/characters.ts';
import { tooLarge } from '../translate/error.ts';
import type { Expression, Grammar } from '../translate/expression.ts';
import { JSON_RULES } from '../translate/json.ts';
import { type ByteRange, utf8 } from './utf8.ts';

/** Most states of one grammar: some 100 MB. */
const MAX_STATES = 400_000;

/** A state of a rule's automaton, with its transitions on a byte, on the empty text, and after a call of another rule. */
export interface State {
  readonly id: number;
  readonly bytes: ByteEdge[];
  readonly empty: State[];
  readonly calls: Call[];
  /** A state of any JSON string after which the same tokens follow as long as the string does not end: see `string-masks.ts`. */
  like?: State;
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
  /** The final state, without transitions. */
  readonly end: State;
}

/**
 * Builds the automata of a grammar's rules (Thompson's construction for each) and answers the root's. A bounded repetition takes a state
 * for each possible iteration.
 *
 * @throws GrammarError `limit-exceeded` for more than 400,000 states
 */
export function buildAutomaton(grammar: Grammar): Rule {
  return new Builder(grammar, jsonAutomata()).root();
}

/** The automata of any JSON, by their definitions: all grammars share them. */
export interface JsonAutomata {
  readonly rules: ReadonlyMap<Expression, Rule>;
  readonly string: Rule;
  /** Before a character of a string or its closing quote, and before that quote. */
  readonly loop: State;
  readonly quote: State;
}

let shared: JsonAutomata | undefined;

export function jsonAutomata(): JsonAutomata {
  shared ??= makeJsonAutomata();
  return shared;
}

function makeJsonAutomata(): JsonAutomata {
  const builder = new Builder({ root: 'value', rules: JSON_RULES });
  builder.root();
  const rules = new Map([...JSON_RULES].map(([name, definition]) => [definition, builder.rule(name)]));
  const string = builder.rule('string');
  const loop = string.start.bytes[0]?.target.empty[0];
  const quote = loop?.empty[0];
  if (!loop || !quote) throw new Error('the automaton of JSON strings has another form');
  return { rules, string, loop, quote };
}

/** Longest tokens, in bytes, that `State.like` holds for. */
export const LONGEST_LIKE = 64;

let lastState = 0;

class Builder {
  readonly #grammar: Grammar;
  readonly #shared: JsonAutomata | undefined;
  readonly #rules = new Map<string, Rule>();
  readonly #pending: (() => void)[] = [];
  #states = 0;

  constructor(grammar: Grammar, json?: JsonAutomata) {
    this.#grammar = grammar;
    this.#shared = json;
  }

  root(): Rule {
    const root = this.rule(this.#grammar.root);
    for (let build = this.#pending.pop(); build !== undefined; build = this.#pending.pop()) build();
    return root;
  }

  rule(name: string): Rule {
    const known = this.#rules.get(name);
    if (known) return known;
    const definition = this.#grammar.rules.get(name);
    if (!definition) throw new Error(`the rule ${name} is not defined`);
    const json = this.#shared?.rules.get(definition);
    if (json) {
      this.#rules.set(name, json);
      return json;
    }
    const rule = { start: this.#state(), end: this.#state() };
    this.#rules.set(name, rule);
    this.#pending.push(() => this.#connect(definition, rule.start, rule.end));
    return rule;
  }

  #state(): State {
    this.#states += 1;
    if (this.#states > MAX_STATES) {
      throw tooLarge(`the grammar takes more than ${MAX_STATES} states; use fewer or smaller repetitions with bounds`);
    }
    lastState += 1;
    return { id: lastState, bytes: [], empty: [], calls: [] };
  }

  /** Adds the paths of `expression` from one state to the other. */
  #connect(expression: Expression, from: State, to: State): void {
    switch (expression.kind) {
      case 'text':
        this.#bytes(
          [...Buffer.from(expression.text)].map((byte) => [byte, byte]),
          from,
          to,
        );
        return;
      case 'class':
        this.#characters(expression.set, from, to);
        return;
      case 'sequence':
        this.#sequence(expression.parts, from, to);
        return;
      case 'choice':
        this.#choice(expression.options, from, to);
        return;
      case 'repeat':
        this.#repeat(expression.body, expression.min, expression.max, from, to);
        return;
      case 'rule':
        from.calls.push({ rule: this.rule(expression.name), target: to });
    }
  }

  #bytes(ranges: readonly ByteRange[], from: State, to: State): void {
    if (ranges.length === 0) from.empty.push(to);
    let at = from;
    for (const [index, [low, high]] of ranges.entries()) {
      const target = index === ranges.length - 1 ? to : this.#state();
      at.bytes.push({ from: low, to: high, target });
      at = target;
    }
  }

  /** Characters with equal last bytes share the states of those bytes. */
  #characters(set: Characters, from: State, to: State): void {
    const tails = new Map<string, State>([['', to]]);
    const before = (tail: readonly ByteRange[]): State => {
      const key = tail.join(' ');
      const known = tails.get(key);
      if (known) return known;
      const state = this.#state();
      tails.set(key, state);
      const [first, ...rest] = tail;
      if (first) state.bytes.push({ from: first[0], to: first[1], target: before(rest) });
      return state;
    };
    for (const [first, ...rest] of utf8(set)) {
      if (first) from.bytes.push({ from: first[0], to: first[1], target: before(rest) });
    }
  }

  #sequence(parts: readonly Expression[], from: State, to: State): void {
    if (parts.length === 0) from.empty.push(to);
    let at = from;
    for (const [index, part] of parts.entries()) {
      const target = index === parts.length - 1 ? to : this.#state();
      this.#connect(part, at, target);
      at = target;
    }
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
        const known = nodes.get(at) ?? new Map<number, State>();
        nodes.set(at, known);
        const target = known.get(byte) ?? this.#state();
        if (!known.has(byte)) at.bytes.push({ from: byte, to: byte, target });
        known.set(byte, target);
        at = target;
      }
      this.#sequence(rest, at, to);
    }
  }

  #repeat(body: Expression, min: number, max: number, from: State, to: State): void {
    // Build the body of a bounded repetition once and call it from each iteration: copies would multiply in nested repetitions.
    const counted = min > 1 || (max > 1 && max !== Number.POSITIVE_INFINITY);
    const rule = counted && body.kind !== 'rule' ? this.#inner(body) : undefined;
    const connect = (start: State, end: State): void => {
      if (rule) start.calls.push({ rule, target: end });
      else this.#connect(body, start, end);
    };
    const json = this.#shared;
    // Far from its bounds, a string with bounds goes on like any other.
    const isString = json !== undefined && body.kind === 'rule' && body.name === 'character' && to !== from;
    const mark = (state: State, left: number): void => {
      if (isString && left > LONGEST_LIKE) state.like = json.loop;
    };
    if (isString) to.like = json.quote;
    let at = from;
    for (let count = 0; count < min; count += 1) {
      const target = count === max - 1 ? to : this.#state();
      connect(at, target);
      at = target;
    }
    if (max === Number.POSITIVE_INFINITY) {
      const loop = this.#state();
      at.empty.push(loop);
      mark(loop, max);
      connect(loop, loop);
      loop.empty.push(to);
      return;
    }
    for (let count = min; count < max; count += 1) {
      mark(at, max - count);
      at.empty.push(to);
      const target = count === max - 1 ? to : this.#state();
      connect(at, target);
      at = target;
    }
  }

  /** A rule without a name. */
  #inner(body: Expression): Rule {
    const rule = { start: this.#state(), end: this.#state() };
    this.#connect(body, rule.start, rule.end);
    return rule;
  }
}
