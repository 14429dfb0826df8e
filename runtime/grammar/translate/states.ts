import { children, type Expression, type Language } from './expression.ts';

/** Maximum states for the last bytes of one range of characters beyond ASCII. */
const STATES_OF_RANGE = 48;

/** An upper bound of the number of states of these rules' automata. It is quick to find, and mostly close to that number. */
export function maxStates(definitions: Iterable<Expression>): number {
  const languages = new Set<Language>();
  let states = 0;
  for (const definition of definitions) states += 2 + maxInnerStates(definition, languages);
  return states;
}

/** @param languages those that are counted already, to which the expression's languages are added: grammars share the automaton of a language */
function maxInnerStates(expression: Expression, languages: Set<Language>): number {
  switch (expression.kind) {
    case 'text':
      // UTF-8 takes at most three bytes for each UTF-16 unit.
      return 3 * expression.text.length;
    case 'class':
      return (expression.set.at(-1)?.[1] ?? 0) < 0x80 ? 0 : STATES_OF_RANGE * expression.set.length;
    case 'sequence': {
      let states = expression.parts.length;
      for (const part of expression.parts) states += maxInnerStates(part, languages);
      return states;
    }
    case 'choice': {
      let states = 0;
      for (const option of expression.options) states += maxInnerStates(option, languages);
      return states;
    }
    case 'repeat': {
      const { body, min, max } = expression;
      const isBounded = max !== Number.POSITIVE_INFINITY;
      // A body is built at most twice: for the loop, and for the required iterations, which share one rule.
      return 4 + 2 * maxInnerStates(body, languages) + (isBounded ? max : min);
    }
    case 'members': {
      const { members } = expression;
      let states = members.most === Number.POSITIVE_INFINITY ? members.least : members.most;
      for (const part of children(expression)) states += 2 + maxInnerStates(part, languages);
      for (const { key } of members.named) states += 3 * key.length;
      return states;
    }
    case 'rule':
      return 0;
    case 'language': {
      const { language } = expression;
      if (languages.has(language)) return 0;
      languages.add(language);
      return language.states;
    }
  }
}
