import { compile } from './schema/compiled.ts';
import { stepsTo } from './schema/fault.ts';
import { isObject } from './schema/references.ts';

/** A JSON Schema, restricted to what a manifest may use for a function's input. */
export interface JsonSchema {
  readonly [keyword: string]: unknown;
}

/** A fault of a schema. `path` leads from the whole schema to the faulty part. */
export interface SchemaFault {
  readonly path: readonly string[];
  readonly message: string;
}

/** Maximum faults in one answer. */
const MAX_FAULTS = 10;

/**
 * Finds the mistakes that make a schema useless, or that a check would ignore: a keyword of a wrong type, a pattern that cannot be matched in
 * linear time, a reference that leads nowhere, a subschema that is not a schema. It looks at all parts that a check may evaluate: the inner
 * schemas of keywords, and the targets of references, wherever they lie. It does not validate fully against the meta-schema.
 */
export function checkInputSchema(schema: unknown): SchemaFault[] {
  // The whole schema must be an object; a schema within it may also be a boolean.
  if (!isObject(schema)) return [{ path: [], message: 'must be a JSON Schema object' }];
  const { faults } = compile(schema);
  return faults.slice(0, MAX_FAULTS).map(({ place, message }) => ({ path: stepsTo(place).map(String), message }));
}
