import type { Grammar } from './expression.ts';
import { SHARED_RULES } from './json.ts';
import { isWhole } from './prune.ts';

/**
 * True for a grammar that surely has nothing to prune and no left recursion: its rules refer to rules before them and to those of any JSON
 * only, and hold nothing that no text matches. Most schemas without references make such grammars; one look at each rule tells.
 */
export function isPlain({ root, rules }: Grammar): boolean {
  const before = new Set<string>();
  for (const [name, definition] of rules) {
    const isShared = SHARED_RULES.some((shared) => shared.get(name) === definition);
    if (!isShared && !isWhole(definition, before)) return false;
    before.add(name);
  }
  return before.has(root);
}
