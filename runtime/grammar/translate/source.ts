import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { Source as GrammarSource } from '#wit/generated/host.ts';
import {
  type Expression,
  type Grammar,
  invalid,
  isWhole,
  type Members,
  prune,
  quote,
  rulesWhere,
} from './expression.ts';
import { parseGbnf } from './gbnf.ts';
import { SHARED_RULES } from './json.ts';
import { jsonGrammar, jsonSchemaGrammar } from './json-schema.ts';
import { regex } from './regex.ts';

export type { GrammarSource };

const MAX_SOURCE_BYTES = 256 << 10;

/**
 * Translates a source into a grammar for a matcher. Pure; a hostile source may take long, so the caller needs a deadline.
 *
 * @throws GrammarError
 */
export function translate(source: GrammarSource): Grammar {
  const made = grammarOf(source);
  // A plain grammar needs neither of the two steps below, and the check is much cheaper.
  if (isPlain(made)) return made;
  const grammar = prune(made);
  refuseLeftRecursion(grammar);
  return grammar;
}

/** The error for a source that is refused unread, or null. */
export function refuseSource(source: GrammarSource): HandlerError | null {
  if (source.tag === 'json') return null;
  const bytes = Buffer.byteLength(source.val);
  if (bytes > MAX_SOURCE_BYTES) {
    const text = `the grammar has ${bytes} bytes; the limit is ${MAX_SOURCE_BYTES}: use a smaller one`;
    return handlerError('invalid-argument', text);
  }
  if (source.val.isWellFormed()) return null;
  return handlerError('invalid-argument', 'the grammar holds half a UTF-16 pair; remove it');
}

export function grammarOf(source: GrammarSource): Grammar {
  switch (source.tag) {
    case 'json':
      return jsonGrammar();
    case 'json-schema':
      return jsonSchemaGrammar(source.val);
    case 'regex':
      return { root: 'root', rules: new Map([['root', regex(source.val)]]) };
    case 'ebnf':
      return parseGbnf(source.val);
  }
}

/**
 * Refuses rules that reach themselves before any character is matched, as llama.cpp does: a left-to-right matcher would never terminate.
 *
 * @throws GrammarError with a rule of the cycle
 */
function refuseLeftRecursion(grammar: Grammar): void {
  /** Rules that may match the empty text. */
  const emptyRules = rulesWhere(grammar, mayBeEmpty);
  /** For each rule, the rules that may stand at its very beginning. */
  const leftmostRules = new Map<string, readonly string[]>();
  for (const [name, definition] of grammar.rules) {
    const names: string[] = [];
    leftmost(definition, emptyRules, names);
    if (names.length > 0) leftmostRules.set(name, names);
  }
  const done = new Set<string>();
  for (const name of leftmostRules.keys()) visit(name, leftmostRules, done);
}

/** Searches for a cycle from `start`, depth first. Uses its own stack instead of recursion, because chains of rules may be long. */
function visit(start: string, leftmostRules: ReadonlyMap<string, readonly string[]>, done: Set<string>): void {
  const path = [{ name: start, next: 0 }];
  const open = new Set([start]);
  for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
    const called = done.has(top.name) ? undefined : leftmostRules.get(top.name)?.[top.next];
    top.next += 1;
    if (called === undefined) {
      done.add(top.name);
      open.delete(top.name);
      path.pop();
    } else if (open.has(called)) {
      throw invalid(
        `the rule ${quote(called)} is left-recursive; write it with * or +, or put the recursion at the end`,
      );
    } else if (!done.has(called)) {
      path.push({ name: called, next: 0 });
      open.add(called);
    }
  }
}

function mayBeEmpty(expression: Expression, empty: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
      return expression.text === '';
    case 'class':
    case 'language':
      return false;
    case 'sequence':
      return expression.parts.every((part) => mayBeEmpty(part, empty));
    case 'choice':
      return expression.options.some((option) => mayBeEmpty(option, empty));
    case 'repeat':
      return expression.min === 0 || mayBeEmpty(expression.body, empty);
    case 'members':
      return isEmptyPossible(expression.members);
    case 'rule':
      return empty.has(expression.name);
  }
}

function isEmptyPossible({ named, needsOther, least }: Members): boolean {
  return least === 0 && !needsOther && !named.some(({ isRequired }) => isRequired);
}

/** Adds the rules that may stand at the very beginning of an expression. Returns true if the expression may be empty. */
function leftmost(expression: Expression, empty: ReadonlySet<string>, names: string[]): boolean {
  switch (expression.kind) {
    case 'text':
    case 'class':
    case 'language':
      return mayBeEmpty(expression, empty);
    case 'sequence':
      return expression.parts.every((part) => leftmost(part, empty, names));
    case 'choice': {
      let isEmpty = false;
      for (const option of expression.options) isEmpty = leftmost(option, empty, names) || isEmpty;
      return isEmpty;
    }
    case 'repeat':
      return leftmost(expression.body, empty, names) || expression.min === 0;
    case 'members':
      // The first member begins with its key; the rule of an undeclared one may stand here.
      if (expression.members.other) leftmost(expression.members.other, empty, names);
      return mayBeEmpty(expression, empty);
    case 'rule':
      names.push(expression.name);
      return empty.has(expression.name);
  }
}

/**
 * True for a grammar that certainly has no left recursion and no part without a text: its rules refer only to earlier rules and to the shared rules
 * of JSON. It may have rules that the root does not reach, which cost only memory. Most schemas without references make such grammars. This check
 * reads each rule once.
 */
function isPlain({ root, rules }: Grammar): boolean {
  const before = new Set<string>();
  for (const [name, definition] of rules) {
    const isShared = SHARED_RULES.some((shared) => shared.get(name) === definition);
    if (!isShared && !isWhole(definition, before)) return false;
    before.add(name);
  }
  return before.has(root);
}
