import { GrammarError } from './error.ts';
import { type Case, conjunction, isContradiction, TYPES, type Type } from './json-schema-case.ts';
import {
  countOf,
  inside,
  listOf,
  mistake,
  namedOf,
  namesOf,
  numberOf,
  own,
  type Part,
  type Pointer,
  part,
  type SchemaObject,
} from './json-schema-object.ts';
import { parseRegex } from './regex.ts';

const MANY = Number.POSITIVE_INFINITY;

/** The rules of a schema's own keywords, or null if they contradict each other. */
export function ownRules(schema: SchemaObject, at: Pointer): Case | null {
  const rules: { -readonly [K in keyof Case]: Case[K] } = {};
  const has = (...keys: readonly string[]): boolean => keys.some((key) => Object.hasOwn(schema, key));
  if (has('type')) {
    const types = writtenTypes(schema, at);
    rules.types = new Set(types.map((type) => (type === 'integer' ? 'number' : type)));
    if (types.includes('integer') && !types.includes('number')) rules.integers = true;
  }
  if (has('enum', 'const')) {
    const list = own(schema, 'enum');
    if (list !== undefined && !Array.isArray(list)) throw mistake(inside(at, 'enum'), 'must be an array');
    const constCase: Case = has('const') ? { listed: [own(schema, 'const')] } : {};
    refuseInexact(list, inside(at, 'enum'));
    refuseInexact(own(schema, 'const'), inside(at, 'const'));
    rules.listed = list === undefined ? constCase.listed : (conjunction({ listed: list }, constCase)?.listed ?? []);
  }
  const limits = limitsOf(schema, at);
  if (has('multipleOf')) rules.multiples = [{ of: stepOf(schema, at), mustHold: true }];
  if (has('minLength')) rules.minLength = countOf(schema, 'minLength', at);
  if (has('maxLength')) rules.maxLength = countOf(schema, 'maxLength', at);
  const pattern = own(schema, 'pattern');
  if (pattern !== undefined) {
    if (typeof pattern !== 'string') throw mistake(inside(at, 'pattern'), 'must be a string');
    checkPattern(pattern, inside(at, 'pattern'));
    rules.patterns = [{ pattern, mustHold: true }];
  }
  if (has('format')) rules.formats = [String(own(schema, 'format'))];
  if (has('minItems')) rules.minItems = countOf(schema, 'minItems', at);
  if (has('maxItems')) rules.maxItems = countOf(schema, 'maxItems', at);
  if (own(schema, 'uniqueItems') === true) rules.unique = true;
  if (has('prefixItems', 'items')) {
    const items = has('items') ? part(own(schema, 'items'), at, 'items') : undefined;
    rules.lists = [{ prefix: listOf(schema, 'prefixItems', at, 0), items, declares: true }];
  }
  if (has('contains')) rules.contains = containsRules(schema, at);
  if (has('required')) rules.required = new Set(namesOf(own(schema, 'required'), inside(at, 'required')));
  if (has('minProperties')) rules.minProperties = countOf(schema, 'minProperties', at);
  if (has('maxProperties')) rules.maxProperties = countOf(schema, 'maxProperties', at);
  if (has('properties', 'patternProperties', 'additionalProperties')) {
    const additional = own(schema, 'additionalProperties');
    rules.objects = [
      {
        properties: new Map(namedOf(schema, 'properties', at)),
        patterns: patternsOf(schema, at),
        additional: additional === undefined ? undefined : part(additional, at, 'additionalProperties'),
        declares: true,
      },
    ];
  }
  if (has('propertyNames')) rules.names = [part(own(schema, 'propertyNames'), at, 'propertyNames')];
  return limits.reduce<Case | null>(
    (joined, limit) => joined && conjunction(joined, limit),
    isContradiction(rules) ? null : rules,
  );
}

function patternsOf(schema: SchemaObject, at: Pointer): readonly (readonly [string, Part])[] {
  const patterns = namedOf(schema, 'patternProperties', at);
  for (const [pattern] of patterns) checkPattern(pattern, inside(at, 'patternProperties', pattern));
  return patterns;
}

/** @throws GrammarError with the place of a pattern that no grammar can express */
function checkPattern(pattern: string, at: Pointer): void {
  try {
    parseRegex(pattern);
  } catch (error) {
    throw error instanceof GrammarError ? mistake(at, error.message) : error;
  }
}

/** Refuses integers of a listed value that may have been written as another number: 2^53 + 1 reads as 2^53. */
function refuseInexact(value: unknown, at: Pointer): void {
  if (typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value))
    throw mistake(at, `${value} is past ±2^53; leave it out or use a smaller one`);
  if (typeof value === 'object' && value !== null) for (const each of Object.values(value)) refuseInexact(each, at);
}

const LIMITS = ['minimum', 'exclusiveMinimum', 'maximum', 'exclusiveMaximum'] as const;

function limitsOf(schema: SchemaObject, at: Pointer): readonly Case[] {
  const limits: Case[] = [];
  for (const key of LIMITS) {
    const value = numberOf(schema, key, at);
    if (value === undefined) continue;
    const limit = { value, exclusive: key.startsWith('exclusive') };
    // Both 'minimum' and 'exclusiveMinimum' end in 'inimum'.
    limits.push(key.endsWith('inimum') ? { low: limit } : { high: limit });
  }
  return limits;
}

export function writtenTypes(schema: SchemaObject, at: Pointer): readonly (Type | 'integer')[] {
  const writtenType = own(schema, 'type');
  const knownTypes: readonly (Type | 'integer')[] = [...TYPES, 'integer'];
  return (Array.isArray(writtenType) ? writtenType : [writtenType]).map((type) => {
    const found = knownTypes.find((name) => name === type);
    if (found) return found;
    throw mistake(inside(at, 'type'), `${JSON.stringify(type)} is not a type; known: ${knownTypes.join(', ')}`);
  });
}

/** The value of 'multipleOf'. */
export function stepOf(schema: SchemaObject, at: Pointer): number {
  const step = numberOf(schema, 'multipleOf', at) ?? 0;
  if (step > 0) return step;
  throw mistake(inside(at, 'multipleOf'), 'must be more than 0');
}

export function containsRules(schema: SchemaObject, at: Pointer): Case['contains'] {
  const [min, max] = [countOf(schema, 'minContains', at) ?? 1, countOf(schema, 'maxContains', at) ?? MANY];
  if (min === 0 && max === MANY) return undefined;
  return [{ item: part(own(schema, 'contains'), at, 'contains'), from: 0, min, max }];
}
