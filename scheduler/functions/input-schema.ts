import { clipped } from './schema/fault.ts';
import { Pattern } from './schema/pattern.ts';
import { PatternError, PROPERTY_ESCAPE } from './schema/pattern-syntax.ts';
import { isObject, MAX_SCHEMA_DEPTH, SCHEMA_KEYWORDS, SchemaError } from './schema/references.ts';
import { SchemaValidator } from './schema/validator.ts';

/** A JSON Schema, restricted to what a manifest may use for a function's input. */
export interface JsonSchema {
  readonly [keyword: string]: unknown;
}

/** A fault of a schema. `path` leads from the whole schema to the faulty part. */
export interface SchemaFault {
  readonly path: readonly string[];
  readonly message: string;
}

const TYPES = ['null', 'boolean', 'object', 'array', 'number', 'string', 'integer'];
/** Maximum faults in one answer. The check ends when it has found as many. */
const MAX_FAULTS = 10;
/** Maximum `\p{…}` in the different patterns of a schema together: V8 takes up to a quarter of a millisecond for each. */
const MAX_PROPERTY_ESCAPES = 128;
/** Maximum characters of a refused pattern in its error message. */
const MAX_SHOWN_PATTERN = 100;

const COUNT_KEYWORDS = [
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'minProperties',
  'maxProperties',
  'minContains',
  'maxContains',
];
const NUMBER_KEYWORDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'];

/**
 * Finds the mistakes that make a schema useless or a validator throw: a wrong type name, a pattern that cannot be matched in linear time, a
 * reference that leads nowhere, a subschema that is not a schema. It does not validate fully against the meta-schema.
 */
export function checkInputSchema(schema: unknown): SchemaFault[] {
  const findings: Findings = { faults: [], patterns: new Set(), propertyEscapes: 0 };
  check(schema, [], 0, findings);
  const { faults } = findings;
  if (faults.length === 0 && isObject(schema)) checkWhole(schema, faults);
  return faults.slice(0, MAX_FAULTS);
}

/** State of one check of a schema. */
interface Findings {
  readonly faults: SchemaFault[];
  /** The different patterns accepted so far. */
  readonly patterns: Set<string>;
  /** Number of `\p{…}` in the different patterns checked so far. */
  propertyEscapes: number;
}

/** Checks that need the whole schema: references, and the bounds on all patterns together. */
function checkWhole(schema: JsonSchema, faults: SchemaFault[]): void {
  try {
    // The constructor throws for a schema that cannot be used.
    new SchemaValidator(schema);
  } catch (error) {
    if (!(error instanceof SchemaError || error instanceof PatternError)) throw error;
    faults.push({ path: [], message: `cannot be used: ${error.message}` });
  }
}

function check(schema: unknown, path: readonly string[], depth: number, findings: Findings): void {
  const { faults } = findings;
  if (faults.length >= MAX_FAULTS) return;
  const fault = (at: readonly string[], message: string) => faults.push({ path: [...path, ...at], message });
  // The whole schema must be an object; a schema within it may also be a boolean.
  if (typeof schema === 'boolean' && path.length > 0) return;
  if (!isObject(schema)) {
    fault([], 'must be a JSON Schema object');
    return;
  }
  if (depth > MAX_SCHEMA_DEPTH) {
    fault([], `must not be nested deeper than ${MAX_SCHEMA_DEPTH} schemas`);
    return;
  }
  checkKeywords(schema, fault, findings);
  const checkInner = (inner: unknown, ...steps: string[]) => check(inner, [...path, ...steps], depth + 1, findings);
  for (const keyword of SCHEMA_KEYWORDS.ofOne) {
    if (schema[keyword] !== undefined) checkInner(schema[keyword], keyword);
  }
  for (const keyword of SCHEMA_KEYWORDS.ofNamed) {
    const value = schema[keyword];
    if (value === undefined) continue;
    if (!isObject(value)) fault([keyword], 'must be an object of schemas');
    else
      for (const [name, inner] of Object.entries(value))
        if (!(keyword === 'dependencies' && isListOfNames(inner))) checkInner(inner, keyword, name);
  }
  for (const keyword of SCHEMA_KEYWORDS.ofLists) {
    const value = schema[keyword];
    if (value === undefined) continue;
    if (!Array.isArray(value) || value.length === 0) fault([keyword], 'must be a list of at least one schema');
    else for (const [index, inner] of value.entries()) checkInner(inner, keyword, String(index));
  }
}

function checkKeywords(
  schema: JsonSchema,
  fault: (at: readonly string[], message: string) => void,
  findings: Findings,
): void {
  const { type, required, pattern } = schema;
  const types = Array.isArray(type) ? type : [type];
  if (type !== undefined && !(types.length > 0 && types.every((name) => TYPES.includes(name)))) {
    fault(['type'], `must be one of ${TYPES.join(', ')}, or a list of them`);
  }
  if (required !== undefined && !isListOfNames(required)) {
    fault(['required'], 'must be a list of property names');
  }
  if (schema.enum !== undefined && !(Array.isArray(schema.enum) && schema.enum.length > 0)) {
    fault(['enum'], 'must be a list of at least one value');
  }
  const patternFault = pattern === undefined ? null : faultOfPattern(pattern, findings);
  if (patternFault !== null) fault(['pattern'], patternFault);
  for (const source of isObject(schema.patternProperties) ? Object.keys(schema.patternProperties) : []) {
    const message = faultOfPattern(source, findings);
    if (message !== null) fault(['patternProperties', source], message);
  }
  if (schema.dependentRequired !== undefined && !areNames(schema.dependentRequired)) {
    fault(['dependentRequired'], 'must be an object of lists of property names');
  }
  for (const keyword of COUNT_KEYWORDS) {
    const value = schema[keyword];
    if (value !== undefined && !(Number.isInteger(value) && Number(value) >= 0))
      fault([keyword], 'must be a whole number, 0 or more');
  }
  for (const keyword of NUMBER_KEYWORDS) {
    const value = schema[keyword];
    if (value !== undefined && (typeof value !== 'number' || !Number.isFinite(value)))
      fault([keyword], 'must be a number');
    else if (keyword === 'multipleOf' && value !== undefined && value <= 0) fault([keyword], 'must be above 0');
  }
  if (typeof schema.$ref === 'string' && !schema.$ref.startsWith('#'))
    fault(['$ref'], 'must point into this schema ("#/…")');
}

const areNames = (value: unknown): boolean => isObject(value) && Object.values(value).every(isListOfNames);

const isListOfNames = (value: unknown): boolean =>
  Array.isArray(value) && value.every((name) => typeof name === 'string');

/** The reason why a pattern is refused, with its text; null when it is accepted. */
function faultOfPattern(source: unknown, findings: Findings): string | null {
  if (typeof source !== 'string') return 'must be a regular expression';
  if (findings.patterns.has(source)) return null;
  // Remove escaped backslashes first: a `p` after one is only a letter.
  findings.propertyEscapes += source.replaceAll('\\\\', '').match(PROPERTY_ESCAPE)?.length ?? 0;
  if (findings.propertyEscapes > MAX_PROPERTY_ESCAPES)
    return `is refused: different patterns together may have at most ${MAX_PROPERTY_ESCAPES} character properties, such as \\p{Lu}`;
  try {
    // The constructor throws for a pattern that is refused.
    new Pattern(source);
    findings.patterns.add(source);
    return null;
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    return `is refused: the pattern ${JSON.stringify(clipped(source, MAX_SHOWN_PATTERN))} ${error.message}`;
  }
}
