import type { Random } from '#test/harness/random.ts';
import { FORMATS } from '../translate/json-schema-string.ts';

type Schema = Readonly<Record<string, unknown>>;

const NAMES = ['name', 'id', 'a', 'ab', 'größe', 'x y', 'q"t', 'back\\slash', ''];
const VALUES = ['red', 'a"b\\c\n', 'é😀', 1, -2.5, 0, true, false, null, [1, 'x'], { k: [null] }];
const PATTERNS = ['^[a-z]{1,5}$', 'x+', '^(ab|cd)*$', '^.{0,4}$', '^["\\\\\\t]?end', '^\\d{3}-\\w+$', '^$', '^[^a]$|b'];

/**
 * A random schema of supported keywords, with definitions that it may refer to. Declared properties come in their order: a random walk then soon
 * writes the required ones.
 */
export function randomSchema(random: Random): Schema {
  const tree = {
    type: 'object',
    properties: { value: { $ref: '#/$defs/small' }, next: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] } },
    required: ['value'],
  };
  const $defs = { tree, small: { type: 'integer', minimum: -9, maximum: 12 } };
  return { 'x-guidance': { ordered: true }, $defs, ...subschema(random, 3) };
}

function subschema(random: Random, depth: number): Schema {
  const leaves = [boolean, integer, number, string, string, patterned, constOrEnum, union, reference, anything];
  return random.pick(
    depth === 0
      ? leaves
      : [...leaves, object, object, object, array, tuple, anyOfTwo, taggedOneOf, allOfMerged, ...COMBINED],
  )(random, depth - 1);
}

function boolean(): Schema {
  return { type: 'boolean', description: 'an annotation' };
}

function anything(random: Random): Schema {
  return random.chance(0.5) ? {} : { type: random.pick(['object', 'array', 'string', 'number', 'null']) };
}

function integer(random: Random): Schema {
  return { type: 'integer', ...bounds(random, () => random.integer(-1200, 1200)) };
}

function number(random: Random): Schema {
  return { type: 'number', ...bounds(random, () => random.integer(-2000, 2000) / 10 ** random.integer(0, 4)) };
}

function bounds(random: Random, value: () => number): Schema {
  const [a, b] = [value(), value()];
  const low = Math.min(a, b);
  const high = low === Math.max(a, b) ? low + 2 : Math.max(a, b);
  return {
    ...(random.chance(0.6) ? { [random.pick(['minimum', 'exclusiveMinimum'])]: low } : {}),
    ...(random.chance(0.6) ? { [random.pick(['maximum', 'exclusiveMaximum'])]: high } : {}),
  };
}

function string(random: Random): Schema {
  const least = random.integer(0, 4);
  return {
    type: 'string',
    ...(random.chance(0.5) ? { minLength: least } : {}),
    ...(random.chance(0.5) ? { maxLength: least + random.integer(0, 6) } : {}),
  };
}

function patterned(random: Random): Schema {
  if (random.chance(0.5)) return { type: 'string', pattern: random.pick(PATTERNS) };
  return { type: 'string', format: random.pick([...FORMATS.keys()]) };
}

function constOrEnum(random: Random): Schema {
  if (random.chance(0.4)) return { const: random.pick(VALUES) };
  return { enum: random.shuffled(VALUES).slice(0, random.integer(1, 4)) };
}

function union(random: Random): Schema {
  return { type: random.shuffled(['string', 'integer', 'number', 'null', 'boolean']).slice(0, random.integer(1, 3)) };
}

function reference(random: Random): Schema {
  return { $ref: random.pick(['#/$defs/tree', '#/$defs/small']) };
}

function anyOfTwo(random: Random, depth: number): Schema {
  return { anyOf: [subschema(random, depth), subschema(random, depth)] };
}

function taggedOneOf(random: Random, depth: number): Schema {
  const variant = (kind: string) => ({
    type: 'object',
    properties: { kind: { const: kind }, value: subschema(random, depth) },
    required: ['kind'],
  });
  return { oneOf: [variant('a'), variant('b'), { type: 'string', maxLength: 3 }] };
}

function allOfMerged(random: Random): Schema {
  return {
    allOf: [
      { type: ['integer', 'string'], minimum: random.integer(-5, 0) },
      { type: ['number', 'null'], maximum: random.integer(1, 90) },
      { $ref: '#/$defs/small' },
    ],
  };
}

/** An object whose properties depend on each other in a random way. */
function dependent(random: Random, depth: number): Schema {
  const kinds = ['a', 'b', 'c'];
  const rule = random.pick<Schema>([
    {
      if: { properties: { kind: { const: 'a' } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: { required: ['x'] },
      else: { properties: { n: { minimum: 3 } } },
    },
    { dependentRequired: { x: ['n'] } },
    { dependentSchemas: { n: { required: ['kind'], properties: { kind: { enum: ['a', 'b'] } } } } },
    { not: { required: ['x', 'n'] } },
    { not: { properties: { kind: { const: 'a' } }, required: ['n'] } },
    { oneOf: [{ required: ['x'] }, { required: ['n'] }] },
    { anyOf: [{ properties: { n: { maximum: 0 } } }, { required: ['x'] }], allOf: [{ not: { required: ['n'] } }] },
  ]);
  return {
    type: 'object',
    properties: { kind: { enum: kinds }, x: subschema(random, depth), n: { type: 'integer', minimum: -20 } },
    ...(random.chance(0.4) ? { required: ['kind'] } : {}),
    ...(random.chance(0.3) ? { additionalProperties: random.chance(0.5) } : {}),
    ...rule,
  };
}

function overlapping(random: Random): Schema {
  const low = random.integer(-9, 9);
  return random.pick<Schema>([
    {
      oneOf: [
        { type: 'integer', minimum: low },
        { type: 'integer', maximum: low + 5 },
      ],
    },
    { oneOf: [{ type: 'integer' }, { type: 'number', minimum: low }] },
    { oneOf: [{ type: 'string', minLength: 2 }, { type: 'string', maxLength: 4 }, { type: ['null', 'boolean'] }] },
    {
      oneOf: [
        { type: 'array', items: { type: 'integer' } },
        { type: 'array', minItems: 2 },
      ],
    },
  ]);
}

function negated(random: Random): Schema {
  return random.pick<Schema>([
    { type: 'string', maxLength: 6, not: { pattern: random.pick(['^a', 'b$', 'é', '^$', '[a-z]']) } },
    { type: ['string', 'integer', 'null'], not: { enum: ['red', 0, 1, null] } },
    { not: { type: random.shuffled(['string', 'array', 'object', 'null', 'boolean', 'integer']).slice(0, 4) } },
    { type: 'array', items: { type: 'integer' }, not: { items: { minimum: 0 } } },
    { type: 'object', properties: { a: true, b: { type: 'null' } }, not: { const: { b: null } } },
  ]);
}

function multiple(random: Random): Schema {
  return random.chance(0.5)
    ? { type: 'integer', multipleOf: random.pick([2, 5, 7, 30]), minimum: random.integer(-300, 0) }
    : { type: 'number', multipleOf: random.pick([0.5, 0.25, 10]), maximum: random.integer(0, 1000) };
}

function constrainedArray(random: Random): Schema {
  const values = random.shuffled(VALUES).slice(0, random.integer(2, 9));
  return random.pick<Schema>([
    { type: 'array', items: { enum: values }, uniqueItems: true, minItems: random.integer(0, 2) },
    { type: 'array', items: { type: ['integer', 'null'] }, contains: { type: 'null' }, maxContains: 2 },
    { type: 'array', contains: { type: 'string' }, minContains: random.integer(0, 2), maxItems: 4 },
    { type: 'array', prefixItems: [{ type: 'integer' }], items: { type: 'string' }, contains: { minLength: 3 } },
  ]);
}

function constrainedNames(random: Random): Schema {
  return {
    type: 'object',
    properties: { ab: { type: 'integer' } },
    patternProperties: { '^a': { minimum: random.integer(-5, 5) }, b$: { type: ['integer', 'null'] } },
    propertyNames: { pattern: '^[a-z]', maxLength: 5 },
    ...(random.chance(0.5) ? { additionalProperties: random.chance(0.5) } : {}),
  };
}

const COMBINED = [dependent, dependent, overlapping, negated, multiple, constrainedArray, constrainedNames];

function array(random: Random, depth: number): Schema {
  const least = random.integer(0, 2);
  return {
    type: 'array',
    ...(random.chance(0.8) ? { items: subschema(random, depth) } : {}),
    ...(random.chance(0.5) ? { minItems: least } : {}),
    ...(random.chance(0.5) ? { maxItems: least + random.integer(0, 3) } : {}),
  };
}

function tuple(random: Random, depth: number): Schema {
  return {
    type: 'array',
    prefixItems: Array.from({ length: random.integer(1, 3) }, () => subschema(random, depth)),
    ...(random.chance(0.3) ? { items: random.chance(0.5) ? false : subschema(random, 0) } : {}),
    ...(random.chance(0.3) ? { minItems: random.integer(0, 2) } : {}),
  };
}

function object(random: Random, depth: number): Schema {
  if (random.chance(0.15))
    return { type: 'object', patternProperties: { '^k[0-9]': subschema(random, 0) }, additionalProperties: false };
  const names = random.shuffled(NAMES).slice(0, random.integer(0, 4));
  const rest = random.pick([undefined, undefined, true, false, { type: 'integer' }]);
  return {
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, subschema(random, depth)])),
    ...(random.chance(0.6) ? { required: random.shuffled(names).slice(0, random.integer(0, names.length)) } : {}),
    ...(rest === undefined ? {} : { additionalProperties: rest }),
    ...(random.chance(0.2) ? { minProperties: random.integer(0, names.length) } : {}),
    ...(random.chance(0.2) ? { maxProperties: names.length + random.integer(0, 1) } : {}),
  };
}
