import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { Source as GrammarSource } from '#wit/generated/host.ts';
import type { Grammar } from './expression.ts';
import { parseGbnf } from './gbnf.ts';
import { jsonGrammar, jsonSchemaGrammar } from './json-schema.ts';
import { refuseLeftRecursion } from './left-recursion.ts';
import { isPlain } from './plain.ts';
import { prune } from './prune.ts';
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
