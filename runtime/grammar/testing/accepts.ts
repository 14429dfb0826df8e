import { prune } from '../translate/expression.ts';
import { jsonSchemaGrammar } from '../translate/json-schema.ts';
import { recognizes } from './recognize.ts';

/** True if a schema's grammar matches the whole text, and the grammar's check at the end accepts it. */
export function accepts(schema: unknown, text: string): boolean {
  const grammar = prune(jsonSchemaGrammar(JSON.stringify(schema)));
  return recognizes(grammar, text) && (grammar.check?.fault(text) ?? null) === null;
}
