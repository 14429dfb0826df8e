import { invalid } from './error.ts';
import {
  children,
  choice,
  EMPTY,
  type Expression,
  type Grammar,
  isNever,
  membersOf,
  NEVER,
  repeat,
  sequence,
} from './expression.ts';

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
