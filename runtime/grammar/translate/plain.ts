import type { Expression, Grammar } from './expression.ts';
import { JSON_RULES } from './json.ts';

/**
 * True for a grammar that surely has nothing to prune and no left recursion: its rules refer to rules before them and to those of any JSON
 * only, and hold nothing that no text matches. Most schemas without references make such grammars; one look at each rule tells.
 */
export function isPlain({ root, rules }: Grammar): boolean {
  const before = new Set<string>();
  for (const [name, definition] of rules) {
    if (JSON_RULES.get(name) !== definition && !isWhole(definition, before)) return false;
    before.add(name);
  }
  return before.has(root);
}

function isWhole(expression: Expression, before: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
    case 'language':
      return true;
    case 'class':
      return expression.set.length > 0;
    case 'sequence':
      for (const part of expression.parts) if (!isWhole(part, before)) return false;
      return true;
    case 'choice':
      for (const option of expression.options) if (!isWhole(option, before)) return false;
      return expression.options.length > 0;
    case 'repeat':
      return expression.max > 0 && isWhole(expression.body, before);
    case 'rule':
      return before.has(expression.name);
  }
}
