import type { Characters } from './characters.ts';

/** An expression that pieces of a text match. */
export type Expression =
  | { readonly kind: 'text'; readonly text: string }
  /** One character of a set. */
  | { readonly kind: 'class'; readonly set: Characters }
  | { readonly kind: 'sequence'; readonly parts: readonly Expression[] }
  | { readonly kind: 'choice'; readonly options: readonly Expression[] }
  /** `max` may be Infinity. */
  | { readonly kind: 'repeat'; readonly body: Expression; readonly min: number; readonly max: number }
  | { readonly kind: 'rule'; readonly name: string };

/** A context-free grammar over characters; JSON schemas, regular expressions and EBNF are translated into it. */
export interface Grammar {
  readonly root: string;
  readonly rules: ReadonlyMap<string, Expression>;
  /** For texts of the grammar: what it cannot keep itself. */
  readonly check?: Check;
}

/** A check of whole texts. */
export interface Check {
  /** The rules that the grammar leaves open, with their places. */
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
  const kept: Expression[] = [];
  for (const part of parts.flatMap((nested) => (nested.kind === 'sequence' ? nested.parts : [nested]))) {
    const last = kept.at(-1);
    if (isNever(part)) return NEVER;
    if (part.kind === 'text' && last?.kind === 'text') kept[kept.length - 1] = text(last.text + part.text);
    else if (!isEmpty(part)) kept.push(part);
  }
  if (kept.length === 0) return EMPTY;
  return kept.length === 1 && kept[0] ? kept[0] : { kind: 'sequence', parts: kept };
}

export function choice(options: readonly Expression[]): Expression {
  const kept = options.flatMap((option) => (option.kind === 'choice' ? option.options : [option]));
  return kept.length === 1 && kept[0] ? kept[0] : { kind: 'choice', options: kept };
}

export function repeat(body: Expression, min: number, max: number): Expression {
  if (max === 0 || isEmpty(body)) return EMPTY;
  if (isNever(body)) return min === 0 ? EMPTY : NEVER;
  return min === 1 && max === 1 ? body : { kind: 'repeat', body, min, max };
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

/** Rules under construction. */
export class RuleSet {
  readonly #rules = new Map<string, Expression>();
  readonly #limit: number;
  readonly #refuse: () => Error;
  #prefixes = 0;

  /** @param refuse makes the error of a rule past `limit` */
  constructor(limit: number, refuse: () => Error) {
    this.#limit = limit;
    this.#refuse = refuse;
  }

  /** Adds a rule named after `hint`; answers a reference to it. */
  add(hint: string, expression: Expression): Expression {
    return this.define(`${hint}.${this.#rules.size}`, expression);
  }

  /** A prefix for names that no rule has yet. */
  unused(hint: string): string {
    this.#prefixes += 1;
    return `${hint}.${this.#prefixes}`;
  }

  define(name: string, expression: Expression): Expression {
    if (this.#rules.size >= this.#limit) throw this.#refuse();
    this.#rules.set(name, expression);
    return { kind: 'rule', name };
  }

  grammar(root: Expression): Grammar {
    this.define('root', root);
    return { root: 'root', rules: this.#rules };
  }
}
