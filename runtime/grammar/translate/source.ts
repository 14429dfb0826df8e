import { invalid, tooLarge } from './error.ts';
import type { Grammar } from './expression.ts';
import { parseGbnf } from './gbnf.ts';
import { jsonGrammar, jsonSchemaGrammar } from './json-schema.ts';
import { refuseLeftRecursion } from './left-recursion.ts';
import { prune } from './prune.ts';
import { regex } from './regex.ts';

/** What a matcher is compiled from, as in `wit/grammar.wit`. */
export type GrammarSource =
  | { readonly tag: 'json-schema' | 'regex' | 'ebnf'; readonly val: string }
  | { readonly tag: 'json' };

export const MAX_SOURCE_BYTES = 256 << 10;

/**
 * A source as a grammar that a matcher can follow. Pure; hostile sources may take long, so whoever calls has a deadline.
 *
 * @throws GrammarError
 */
export function translate(source: GrammarSource): Grammar {
  const grammar = prune(grammarOf(source));
  refuseLeftRecursion(grammar);
  return grammar;
}

/** Refuses what is not worth looking at. @throws GrammarError */
export function checkSource(source: GrammarSource): void {
  if (source.tag === 'json') return;
  const bytes = Buffer.byteLength(source.val);
  if (bytes > MAX_SOURCE_BYTES) {
    throw tooLarge(`the grammar has ${bytes} bytes; the limit is ${MAX_SOURCE_BYTES}: use a smaller one`);
  }
  if (!source.val.isWellFormed()) throw invalid('the grammar holds half a UTF-16 pair; remove it');
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
