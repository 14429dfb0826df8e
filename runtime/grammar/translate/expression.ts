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
export function children(expression: Expression): readonly Expression[] {
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
