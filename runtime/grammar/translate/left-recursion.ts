import { invalid, quote } from './error.ts';
import type { Expression, Grammar } from './expression.ts';
import { rulesWhere } from './prune.ts';

/**
 * Refuses rules that reach themselves before any character is matched, as llama.cpp does: a left-to-right matcher would never terminate.
 *
 * @throws GrammarError with a rule of the cycle
 */
export function refuseLeftRecursion(grammar: Grammar): void {
  const empty = rulesWhere(grammar, mayBeEmpty);
  const first = new Map([...grammar.rules].map(([name, definition]) => [name, [...leftmost(definition, empty)]]));
  const done = new Set<string>();
  for (const name of grammar.rules.keys()) visit(name, first, done);
}

/** Searches depth first, with an explicit stack: chains of rules may be long. */
function visit(start: string, first: ReadonlyMap<string, readonly string[]>, done: Set<string>): void {
  const path = [{ name: start, next: 0 }];
  const open = new Set([start]);
  for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
    const called = done.has(top.name) ? undefined : first.get(top.name)?.[top.next];
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
      return false;
    case 'sequence':
      return expression.parts.every((part) => mayBeEmpty(part, empty));
    case 'choice':
      return expression.options.some((option) => mayBeEmpty(option, empty));
    case 'repeat':
      return expression.min === 0 || mayBeEmpty(expression.body, empty);
    case 'rule':
      return empty.has(expression.name);
  }
}

/** Rules that may stand at the very beginning of an expression. */
function leftmost(expression: Expression, empty: ReadonlySet<string>, found: Set<string> = new Set()): Set<string> {
  switch (expression.kind) {
    case 'text':
    case 'class':
      break;
    case 'sequence':
      for (const part of expression.parts) {
        leftmost(part, empty, found);
        if (!mayBeEmpty(part, empty)) break;
      }
      break;
    case 'choice':
      for (const option of expression.options) leftmost(option, empty, found);
      break;
    case 'repeat':
      leftmost(expression.body, empty, found);
      break;
    case 'rule':
      found.add(expression.name);
  }
  return found;
}
