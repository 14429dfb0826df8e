import { invalid } from './error.ts';
import { choice, EMPTY, type Expression, type Grammar, isNever, NEVER, repeat, sequence } from './expression.ts';

/**
 * Removes everything that no finite text matches: rules that only lead to themselves, and all that needs them. So no matcher reaches a
 * place without a continuation. Rules that `root` does not reach are removed, too.
 *
 * @throws GrammarError when no text matches at all
 */
export function prune(grammar: Grammar): Grammar {
  const productive = productiveRules(grammar);
  const rules = new Map<string, Expression>();
  const pending = [grammar.root];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const definition = grammar.rules.get(name);
    if (rules.has(name) || definition === undefined) continue;
    const kept = keep(definition, productive);
    rules.set(name, kept);
    for (const used of references(kept)) pending.push(used);
  }
  const root = rules.get(grammar.root);
  if (root === undefined || isNever(root)) {
    throw invalid('no text matches this grammar: every way through it leads back to itself or to a contradiction');
  }
  return { ...grammar, rules };
}

/** Names of the rules that some finite text matches. */
function productiveRules(grammar: Grammar): ReadonlySet<string> {
  return rulesWhere(grammar, ends);
}

/** The least set of rules whose definitions `hold` when the rules in it do. */
export function rulesWhere(
  { rules }: Grammar,
  holds: (definition: Expression, known: ReadonlySet<string>) => boolean,
): ReadonlySet<string> {
  const users = new Map<string, string[]>();
  for (const [name, definition] of rules) {
    for (const used of references(definition)) {
      const known = users.get(used);
      if (known) known.push(name);
      else users.set(used, [name]);
    }
  }
  const found = new Set<string>();
  const pending = [...rules.keys()];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const definition = rules.get(name);
    if (found.has(name) || definition === undefined || !holds(definition, found)) continue;
    found.add(name);
    for (const user of users.get(name) ?? []) pending.push(user);
  }
  return found;
}

function ends(expression: Expression, productive: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
      return true;
    case 'class':
      return expression.set.length > 0;
    case 'sequence':
      return expression.parts.every((part) => ends(part, productive));
    case 'choice':
      return expression.options.some((option) => ends(option, productive));
    case 'repeat':
      return expression.min === 0 || ends(expression.body, productive);
    case 'rule':
      return productive.has(expression.name);
  }
}

/** The same object if nothing is removed. */
function keep(expression: Expression, productive: ReadonlySet<string>): Expression {
  switch (expression.kind) {
    case 'text':
      return expression;
    case 'class':
      return expression.set.length > 0 ? expression : NEVER;
    case 'sequence': {
      const parts = expression.parts.map((part) => keep(part, productive));
      return parts.every((part, index) => part === expression.parts[index]) ? expression : sequence(parts);
    }
    case 'choice': {
      const options = expression.options.map((option) => keep(option, productive));
      const isSame = options.every((option, index) => option === expression.options[index] && !isNever(option));
      return isSame ? expression : choice(options.filter((kept) => !isNever(kept)));
    }
    case 'repeat': {
      const body = keep(expression.body, productive);
      if (expression.max === 0) return EMPTY;
      return body === expression.body ? expression : repeat(body, expression.min, expression.max);
    }
    case 'rule':
      return productive.has(expression.name) ? expression : NEVER;
  }
}

/** Names of the rules that stand in an expression, each once. */
export function references(expression: Expression): ReadonlySet<string> {
  const names = new Set<string>();
  const pending = [expression];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (next.kind === 'rule') names.add(next.name);
    else for (const inner of children(next)) pending.push(inner);
  }
  return names;
}

function children(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'sequence':
      return expression.parts;
    case 'choice':
      return expression.options;
    case 'repeat':
      return [expression.body];
    default:
      return [];
  }
}
