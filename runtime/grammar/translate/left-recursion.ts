import { invalid, quote } from './error.ts';
import type { Expression, Grammar, Members } from './expression.ts';
import { rulesWhere } from './prune.ts';

/**
 * Refuses rules that reach themselves before any character is matched, as llama.cpp does: a left-to-right matcher would never terminate.
 *
 * @throws GrammarError with a rule of the cycle
 */
export function refuseLeftRecursion(grammar: Grammar): void {
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
