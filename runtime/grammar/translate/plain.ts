import type { Grammar } from './expression.ts';
import { SHARED_RULES } from './json.ts';
import { isWhole } from './prune.ts';

/**
 * True for a grammar that certainly has no left recursion and no part without a text: its rules refer only to earlier rules and to the shared rules
 * of JSON. It may have rules that the root does not reach, which cost only memory. Most schemas without references make such grammars. This check
 * reads each rule once.
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
