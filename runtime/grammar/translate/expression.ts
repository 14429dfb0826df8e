import type { Characters } from './characters.ts';

/** A part of a grammar, which matches pieces of a text. */
export type Expression =
  | { readonly kind: 'text'; readonly text: string }
  /** One character of a set. */
  | { readonly kind: 'class'; readonly set: Characters }
  | { readonly kind: 'sequence'; readonly parts: readonly Expression[] }
  | { readonly kind: 'choice'; readonly options: readonly Expression[] }
  /** `max` may be Infinity. */
  | { readonly kind: 'repeat'; readonly body: Expression; readonly min: number; readonly max: number }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'members'; readonly members: Members }
  /** A text of a separate language. Grammars share the language, and the automaton that is made from it. */
  | { readonly kind: 'language'; readonly language: Language };

/** One member of an object. */
export interface Member {
  /** The text before its value: the name in quotes, and the colon. */
  readonly key: string;
  readonly value: Expression;
  readonly isRequired: boolean;
}

/** The members of an object, with separators between them. */
export interface Members {
  /** Members that stand at most once. */
  readonly named: readonly Member[];
  /** True if the named members stand in their order, and other members after them. Otherwise all stand in any order. */
  readonly isOrdered: boolean;
  /** A member that stands any number of times. */
  readonly other: Expression | undefined;
  /** True if at least one such member must stand. */
  readonly needsOther: boolean;
  /** Fewest and most members; `most` may be Infinity. */
  readonly least: number;
  readonly most: number;
  readonly separator: Expression;
}

/** Expressions by name, and the name of the root. */
export interface Definitions {
  readonly root: string;
  readonly rules: Pick<ReadonlyMap<string, Expression>, 'get'>;
}

/** A language with its own rules. It does not contain the empty text, and every rule matches a text. Some rules are built at their first lookup. */
export interface Language extends Definitions {
  /** True when each text is a JSON string, or the rest of one: it ends with its only closing quote. */
  readonly isString: boolean;
  /** Number of rules that count towards a schema's limit. */
  readonly size: number;
  /** Upper bound on the states of its automaton. */
  readonly states: number;
  /** Bounds on the lengths of the strings. Present only for a language of all strings of these lengths. */
  readonly lengths?: Lengths;
}

export interface Lengths {
  /** Fewest and most characters; `max` may be Infinity. */
  readonly min: number;
  readonly max: number;
  /** True when the texts are rests of strings, without the opening quote. */
  readonly isBegun: boolean;
}

/** A context-free grammar over characters; JSON schemas, regular expressions and EBNF are translated into it. */
export interface Grammar extends Definitions {
  readonly rules: ReadonlyMap<string, Expression>;
  /** True for texts of JSON: the matcher then refuses a key that its object already has, which no grammar expresses. */
  readonly isJson?: boolean;
  /** Checks whole texts for the keywords of a JSON schema that no grammar expresses; absent when there are none. */
  readonly check?: Check;
}

/** A check of whole texts. */
export interface Check {
  /** The keywords of the schema that the grammar does not enforce, each with its place, such as `uniqueItems (#/tags)`. */
  readonly open: readonly string[];
  /** Checks a whole text. Returns its fault, or null. @throws GrammarError for a text that takes too long to check */
  fault(text: string): string | null;
}

export const EMPTY: Expression = { kind: 'text', text: '' };
/** Matches nothing, not even the empty text. */
export const NEVER: Expression = { kind: 'choice', options: [] };

export function text(value: string): Expression {
  return value === '' ? EMPTY : { kind: 'text', text: value };
}

export function oneOf(set: Characters): Expression {
  return set.length === 0 ? NEVER : { kind: 'class', set };
}

export function sequence(parts: readonly Expression[]): Expression {
  const flatParts: Expression[] = [];
  for (const part of parts) {
    if (isNever(part)) return NEVER;
    if (part.kind === 'sequence') for (const nested of part.parts) append(flatParts, nested);
    else append(flatParts, part);
  }
  if (flatParts.length === 0) return EMPTY;
  return flatParts.length === 1 && flatParts[0] ? flatParts[0] : { kind: 'sequence', parts: flatParts };
}

/** Adds a part. Joins adjacent texts. */
function append(flatParts: Expression[], part: Expression): void {
  const last = flatParts.at(-1);
  if (part.kind === 'text' && last?.kind === 'text') flatParts[flatParts.length - 1] = text(last.text + part.text);
  else if (!isEmpty(part)) flatParts.push(part);
}

export function choice(options: readonly Expression[]): Expression {
  const flatOptions: Expression[] = [];
  for (const option of options) {
    if (option.kind === 'choice') flatOptions.push(...option.options);
    else flatOptions.push(option);
  }
  return flatOptions.length === 1 && flatOptions[0] ? flatOptions[0] : { kind: 'choice', options: flatOptions };
}

export function repeat(body: Expression, min: number, max: number): Expression {
  if (max === 0 || isEmpty(body)) return EMPTY;
  if (isNever(body)) return min === 0 ? EMPTY : NEVER;
  return min === 1 && max === 1 ? body : { kind: 'repeat', body, min, max };
}

/** The members of an object. Leaves out members without a text. */
export function membersOf(members: Members): Expression {
  const { least, most, needsOther } = members;
  const named = members.named.filter(({ value, isRequired }) => isRequired || !isNever(value));
  const requiredCount = named.filter(({ isRequired }) => isRequired).length + (needsOther ? 1 : 0);
  const other = members.other && !isNever(members.other) ? members.other : undefined;
  const count = other ? Number.POSITIVE_INFINITY : named.length;
  const isImpossible =
    (needsOther && !other) ||
    named.some(({ value }) => isNever(value)) ||
    requiredCount > most ||
    least > Math.min(count, most);
  if (isImpossible) return NEVER;
  return count === 0 || most === 0 ? EMPTY : { kind: 'members', members: { ...members, named, other } };
}

export function optional(body: Expression): Expression {
  return repeat(body, 0, 1);
}

export function isNever(expression: Expression): boolean {
  return expression.kind === 'choice' && expression.options.length === 0;
}

function isEmpty(expression: Expression): boolean {
  return expression.kind === 'text' && expression.text === '';
}

/** The parts of an expression. */
function children(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'sequence':
      return expression.parts;
    case 'choice':
      return expression.options;
    case 'repeat':
      return [expression.body];
    case 'members':
      return partsOfMembers(expression.members);
    default:
      return [];
  }
}

function partsOfMembers({ named, other, separator }: Members): readonly Expression[] {
  return [separator, ...named.map(({ value }) => value), ...(other ? [other] : [])];
}

/** Rules under construction. */
export class RuleSet {
  readonly #rules = new Map<string, Expression>();
  readonly #limit: number;
  readonly #refuse: () => Error;
  #prefixes = 0;
  #reserved = 0;

  /** @param refuse makes the error that is thrown for more rules than `limit` */
  constructor(limit: number, refuse: () => Error) {
    this.#limit = limit;
    this.#refuse = refuse;
  }

  /** Adds a rule named after `hint`; returns a reference to it. */
  add(hint: string, expression: Expression): Expression {
    return this.define(`${hint}.${this.#rules.size}`, expression);
  }

  /** A prefix for names that no rule has yet. */
  unused(hint: string): string {
    this.#prefixes += 1;
    return `${hint}.${this.#prefixes}`;
  }

  define(name: string, expression: Expression): Expression {
    this.reserve(0); // Throws at the limit.
    this.#rules.set(name, expression);
    return { kind: 'rule', name };
  }

  get size(): number {
    return this.#rules.size;
  }

  get reserved(): number {
    return this.#reserved;
  }

  /** Counts rules that grammars share. The set does not hold them, but they count towards the limit. */
  reserve(rules: number): void {
    this.#reserved += rules;
    if (this.#rules.size + this.#reserved >= this.#limit) throw this.#refuse();
  }

  grammar(root: Expression): Grammar {
    this.define('root', root);
    return { root: 'root', rules: this.#rules };
  }
}

/**
 * Thrown for a source that cannot be matched, and for a call that a matcher refuses. `message` says what is wrong,
 * where, and what to do about it.
 */
export class GrammarError extends Error {
  override readonly name = 'GrammarError';
  readonly tag: 'invalid-argument' | 'limit-exceeded';

  constructor(tag: 'invalid-argument' | 'limit-exceeded', message: string) {
    super(message);
    this.tag = tag;
  }
}

export function invalid(message: string): GrammarError {
  return new GrammarError('invalid-argument', message);
}

export function tooLarge(message: string): GrammarError {
  return new GrammarError('limit-exceeded', message);
}

/** A piece of a source for a message, short and in quotes. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}

/** Maximum states for the last bytes of one range of characters beyond ASCII. */
const STATES_OF_RANGE = 48;

/** An upper bound of the number of states of these rules' automata. It is quick to find, and mostly close to that number. */
export function maxStates(definitions: Iterable<Expression>): number {
  const languages = new Set<Language>();
  let states = 0;
  for (const definition of definitions) states += 2 + maxInnerStates(definition, languages);
  return states;
}

/** @param languages those that are counted already, to which the expression's languages are added: grammars share the automaton of a language */
function maxInnerStates(expression: Expression, languages: Set<Language>): number {
  switch (expression.kind) {
    case 'text':
      // UTF-8 takes at most three bytes for each UTF-16 unit.
      return 3 * expression.text.length;
    case 'class':
      return (expression.set.at(-1)?.[1] ?? 0) < 0x80 ? 0 : STATES_OF_RANGE * expression.set.length;
    case 'sequence': {
      let states = expression.parts.length;
      for (const part of expression.parts) states += maxInnerStates(part, languages);
      return states;
    }
    case 'choice': {
      let states = 0;
      for (const option of expression.options) states += maxInnerStates(option, languages);
      return states;
    }
    case 'repeat': {
      const { body, min, max } = expression;
      const isBounded = max !== Number.POSITIVE_INFINITY;
      // A body is built at most twice: for the loop, and for the required iterations, which share one rule.
      return 4 + 2 * maxInnerStates(body, languages) + (isBounded ? max : min);
    }
    case 'members': {
      const { members } = expression;
      let states = members.most === Number.POSITIVE_INFINITY ? members.least : members.most;
      for (const part of children(expression)) states += 2 + maxInnerStates(part, languages);
      for (const { key } of members.named) states += 3 * key.length;
      return states;
    }
    case 'rule':
      return 0;
    case 'language': {
      const { language } = expression;
      if (languages.has(language)) return 0;
      languages.add(language);
      return language.states;
    }
  }
}

/** Passes over all rules in order, before a search by uses. Most rules follow the rules that they use, so the passes usually find everything. */
const MAX_PASSES = 3;

/**
 * Removes everything that no finite text matches: rules that only lead to themselves, and all parts that need them. A matcher therefore never
 * reaches a place without a continuation. Rules that `root` does not reach are removed, too.
 *
 * @throws GrammarError when no text matches at all
 */
export function prune(grammar: Grammar): Grammar {
  const productive = rulesWhere(grammar, matchesSomeText);
  const rules = new Map<string, Expression>();
  const pending = [grammar.root];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const definition = grammar.rules.get(name);
    if (rules.has(name) || definition === undefined) continue;
    const pruned = isWhole(definition, productive) ? definition : productivePart(definition, productive);
    rules.set(name, pruned);
    for (const used of references(pruned)) pending.push(used);
  }
  const root = rules.get(grammar.root);
  if (root === undefined || isNever(root)) {
    throw invalid('no text matches this grammar: every way through it leads back to itself or to a contradiction');
  }
  return { ...grammar, rules };
}

/** The smallest set that contains every rule for whose definition `holds` returns true, given the set itself. */
export function rulesWhere(
  { rules }: Grammar,
  holds: (definition: Expression, known: ReadonlySet<string>) => boolean,
): ReadonlySet<string> {
  const found = new Set<string>();
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const sizeBefore = found.size;
    for (const [name, definition] of rules) if (!found.has(name) && holds(definition, found)) found.add(name);
    if (found.size === rules.size || found.size === sizeBefore) return found;
  }
  const users = new Map<string, string[]>();
  for (const [name, definition] of rules) {
    for (const used of references(definition)) {
      const usingRules = users.get(used);
      if (usingRules) usingRules.push(name);
      else users.set(used, [name]);
    }
  }
  const pending = [...rules.keys()];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const definition = rules.get(name);
    if (found.has(name) || definition === undefined || !holds(definition, found)) continue;
    found.add(name);
    pending.push(...(users.get(name) ?? []));
  }
  return found;
}

function matchesSomeText(expression: Expression, productive: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
    case 'language':
      return true;
    case 'class':
      return expression.set.length > 0;
    case 'sequence':
      return expression.parts.every((part) => matchesSomeText(part, productive));
    case 'choice':
      return expression.options.some((option) => matchesSomeText(option, productive));
    case 'repeat':
      return expression.min === 0 || matchesSomeText(expression.body, productive);
    case 'members':
      return !isNever(productivePart(expression, productive));
    case 'rule':
      return productive.has(expression.name);
  }
}

/** True if every part of an expression matches a text, given the rules that match one. */
export function isWhole(expression: Expression, productive: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
    case 'language':
      return true;
    case 'class':
      return expression.set.length > 0;
    case 'sequence':
      return expression.parts.every((part) => isWhole(part, productive));
    case 'choice':
      return expression.options.length > 0 && expression.options.every((option) => isWhole(option, productive));
    case 'repeat':
      return expression.max > 0 && isWhole(expression.body, productive);
    case 'members':
      return children(expression).every((part) => isWhole(part, productive));
    case 'rule':
      return productive.has(expression.name);
  }
}

/** Returns the part of an expression that finite texts match. */
function productivePart(expression: Expression, productive: ReadonlySet<string>): Expression {
  switch (expression.kind) {
    case 'text':
    case 'language':
      return expression;
    case 'class':
      return expression.set.length > 0 ? expression : NEVER;
    case 'sequence':
      return sequence(expression.parts.map((part) => productivePart(part, productive)));
    case 'choice':
      return choice(
        expression.options.map((option) => productivePart(option, productive)).filter((kept) => !isNever(kept)),
      );
    case 'repeat':
      return expression.max === 0
        ? EMPTY
        : repeat(productivePart(expression.body, productive), expression.min, expression.max);
    case 'members': {
      const { named, other, separator, ...rest } = expression.members;
      return membersOf({
        ...rest,
        named: named.map((member) => ({ ...member, value: productivePart(member.value, productive) })),
        other: other && productivePart(other, productive),
        separator: productivePart(separator, productive),
      });
    }
    case 'rule':
      return productive.has(expression.name) ? expression : NEVER;
  }
}

/** Names of the rules that stand in an expression, each once, the last one first. */
export function references(expression: Expression): ReadonlySet<string> {
  const names: string[] = [];
  refer(expression, names);
  return new Set(names.reverse());
}

function refer(expression: Expression, names: string[]): void {
  switch (expression.kind) {
    case 'sequence':
      for (const part of expression.parts) refer(part, names);
      return;
    case 'choice':
      for (const option of expression.options) refer(option, names);
      return;
    case 'repeat':
      refer(expression.body, names);
      return;
    case 'members':
      for (const part of children(expression)) refer(part, names);
      return;
    case 'rule':
      names.push(expression.name);
  }
}
