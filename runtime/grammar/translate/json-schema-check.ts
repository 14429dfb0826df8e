import { StepsExhausted, TooDeepError } from '#scheduler/functions/schema/budget.ts';
import { type JsonSchema, pointerTo, SchemaError } from '#scheduler/functions/schema/compiled.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { PatternError } from '#scheduler/functions/schema/pattern.ts';
import { SchemaValidator } from '#scheduler/functions/schema/validator.ts';
import { tooLarge } from './error.ts';
import type { Check } from './expression.ts';
import { mistake, type Pointer, shortened } from './json-schema-object.ts';

/** A keyword that the grammar does not enforce. */
export interface OpenKeyword {
  readonly keyword: string;
  readonly at: Pointer;
}

/** Maximum keywords that a message names. */
const MAX_NAMED = 5;

/**
 * A check of whole texts against the whole schema, for the keywords that the grammar leaves open.
 *
 * @throws GrammarError for a schema that cannot be checked either
 */
export function checkOf(root: unknown, open: readonly OpenKeyword[]): Check {
  const [first = { keyword: 'the schema', at: '#' }] = open;
  const names = [...new Set(open.map(({ keyword, at }) => `${keyword} (${shortened(at)})`))];
  const openKeywords = names.length > MAX_NAMED ? `${names.slice(0, MAX_NAMED).join(', ')}, …` : names.join(', ');
  let validator: SchemaValidator;
  try {
    validator = new SchemaValidator(root as JsonSchema | boolean);
  } catch (error) {
    if (!(error instanceof SchemaError || error instanceof PatternError)) throw error;
    throw mistake(first.at, `${first.keyword} cannot be kept while decoding, nor checked at the end: ${error.message}`);
  }
  return { open: names, fault: (text) => faultOf(validator, text, openKeywords) };
}

function faultOf(validator: SchemaValidator, text: string, openKeywords: string): string | null {
  const advice = `the grammar leaves ${openKeywords} open, to be checked at the end; ask again, or write a stricter schema`;
  try {
    const fault = validator.check(jsonValue(text));
    return fault && `the value at "${pointerTo(fault.place)}" does not fit the schema: ${fault.message} (${advice})`;
  } catch (error) {
    if (!(error instanceof StepsExhausted || error instanceof TooDeepError)) throw error;
    throw tooLarge(`the text cannot be checked against its schema: ${error.message} (${advice})`);
  }
}
