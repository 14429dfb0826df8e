import { type Case, TYPES, type Type, typeOf } from './json-schema-case.ts';
import { absent, type CaseMaker, limited, present, product, property } from './json-schema-combine.ts';
import { FORMATS } from './json-schema-formats.ts';
import { containsRules, stepOf, writtenTypes } from './json-schema-keywords.ts';
import {
  countOf,
  Inexpressible,
  inside,
  isObject,
  listOf,
  mistake,
  namedOf,
  namesOf,
  negation,
  numberOf,
  own,
  type Part,
  type Pointer,
  part,
  type SchemaObject,
} from './json-schema-object.ts';

const MANY = Number.POSITIVE_INFINITY;

type Negation = (schema: SchemaObject, at: Pointer, cases: CaseMaker) => readonly Case[];

/**
 * Cases of the values that do not fit a schema: they break one of its keywords. Leaves out keywords whose opposite no grammar can express.
 *
 * @throws Inexpressible if such a keyword is left out and no case remains
 */
export function noneOf(schema: SchemaObject, at: Pointer, cases: CaseMaker): readonly Case[] {
  const breakingCases: Case[] = [];
  let missed: Inexpressible | undefined;
  for (const [keyword, negate] of Object.entries(NEGATIONS)) {
    if (own(schema, keyword) === undefined) continue;
    try {
      breakingCases.push(...negate(schema, at, cases));
    } catch (error) {
      if (!(error instanceof Inexpressible)) throw error;
      missed = error;
    }
  }
  if (missed && breakingCases.length === 0) throw missed;
  return limited(breakingCases);
}

const negations = (parts: readonly Part[]): readonly Part[] => parts.map(negation);

function inexpressible(keyword: string): Negation {
  return (schema) => {
    // 'uniqueItems: false' and, for example, 'additionalProperties: true' hold for every value, so no value breaks them.
    const holdsAlways = own(schema, keyword) === (keyword !== 'uniqueItems');
    if (holdsAlways) return [];
    throw new Inexpressible(`no grammar keeps the opposite of ${keyword}`);
  };
}

/** The case of the numbers beyond a keyword's bound; no case if `rule` returns null. */
function brokenBound(keyword: string, rule: (value: number) => Case | null): Negation {
  return (schema, at) => {
    const broken = rule(numberOf(schema, keyword, at) ?? 0);
    return broken ? [broken] : [];
  };
}

/** The case of the values beyond a bound on their characters, items or properties; no case if `rule` returns null. */
function brokenCount(keyword: string, rule: (count: number) => Case | null): Negation {
  return (schema, at) => {
    const broken = rule(countOf(schema, keyword, at) ?? 0);
    return broken ? [broken] : [];
  };
}

const only = (...types: readonly Type[]): { readonly types: ReadonlySet<Type> } => ({ types: new Set(types) });

const NEGATIONS: Readonly<Record<string, Negation>> = {
  $ref: (schema, at, cases) => cases.of([negation(cases.resolve(schema, at))]),
  allOf: (schema, at, cases) => cases.any(negations(listOf(schema, 'allOf', at))),
  anyOf: (schema, at, cases) => cases.of(negations(listOf(schema, 'anyOf', at))),
  oneOf: (schema, at, cases) => {
    const options = listOf(schema, 'oneOf', at);
    const pairs = options.flatMap((a, index) => options.slice(index + 1).flatMap((b) => cases.of([a, b])));
    return [...cases.of(negations(options)), ...pairs];
  },
  not: (schema, at, cases) => cases.of([part(own(schema, 'not'), at, 'not')]),
  if: (schema, at, cases) => {
    const condition = part(own(schema, 'if'), at, 'if');
    const branch = (key: string): Part => negation(part(own(schema, key) ?? true, at, key));
    return [...cases.of([condition, branch('then')]), ...cases.of([negation(condition), branch('else')])];
  },
  dependentRequired: (schema, at, cases) => brokenDependents(schema, 'dependentRequired', at, cases),
  dependentSchemas: (schema, at, cases) => brokenDependents(schema, 'dependentSchemas', at, cases),
  dependencies: (schema, at, cases) => brokenDependents(schema, 'dependencies', at, cases),
  type: (schema, at) => {
    const declaredTypes = writtenTypes(schema, at);
    const otherTypes = TYPES.filter(
      (type) => !declaredTypes.includes(type) && !(type === 'number' && declaredTypes.includes('integer')),
    );
    const allowsFractions = declaredTypes.includes('integer') && !declaredTypes.includes('number');
    return [
      ...(otherTypes.length > 0 ? [only(...otherTypes)] : []),
      ...(allowsFractions ? [{ ...only('number'), multiples: [{ of: 1, mustHold: false }] }] : []),
    ];
  },
  const: (schema, at) => allBut([own(schema, 'const')], inside(at, 'const')),
  enum: (schema, at) => {
    const values = own(schema, 'enum');
    if (!Array.isArray(values)) throw mistake(inside(at, 'enum'), 'must be an array');
    return allBut(values, inside(at, 'enum'));
  },
  minimum: brokenBound('minimum', (value) => ({ ...only('number'), high: { value, exclusive: true } })),
  exclusiveMinimum: brokenBound('exclusiveMinimum', (value) => ({
    ...only('number'),
    high: { value, exclusive: false },
  })),
  maximum: brokenBound('maximum', (value) => ({ ...only('number'), low: { value, exclusive: true } })),
  exclusiveMaximum: brokenBound('exclusiveMaximum', (value) => ({
    ...only('number'),
    low: { value, exclusive: false },
  })),
  multipleOf: (schema, at) => [{ ...only('number'), multiples: [{ of: stepOf(schema, at), mustHold: false }] }],
  minLength: brokenCount('minLength', (count) => (count === 0 ? null : { ...only('string'), maxLength: count - 1 })),
  maxLength: brokenCount('maxLength', (count) => ({ ...only('string'), minLength: count + 1 })),
  pattern: (schema) => [
    { ...only('string'), patterns: [{ pattern: String(own(schema, 'pattern')), mustHold: false }] },
  ],
  format: (schema, at, cases) =>
    FORMATS.has(String(own(schema, 'format'))) ? inexpressible('format')(schema, at, cases) : [],
  minItems: brokenCount('minItems', (count) => (count === 0 ? null : { ...only('array'), maxItems: count - 1 })),
  maxItems: brokenCount('maxItems', (count) => ({ ...only('array'), minItems: count + 1 })),
  uniqueItems: inexpressible('uniqueItems'),
  prefixItems: (schema, at) =>
    listOf(schema, 'prefixItems', at, 0).map((item, index) => {
      const prefix = [...Array.from({ length: index }, () => part(true, '#anything')), negation(item)];
      return { ...only('array'), minItems: index + 1, lists: [{ prefix, items: undefined, declares: false }] };
    }),
  items: (schema, at) => {
    const from = listOf(schema, 'prefixItems', at, 0).length;
    const item = negation(part(own(schema, 'items'), at, 'items'));
    return item.schema === true ? [] : [{ ...only('array'), contains: [{ item, from, min: 1, max: MANY }] }];
  },
  contains: (schema, at) =>
    (containsRules(schema, at) ?? []).flatMap((rule) => [
      ...(rule.min > 0 ? [{ ...only('array'), contains: [{ ...rule, min: 0, max: rule.min - 1 }] }] : []),
      ...(rule.max < MANY ? [{ ...only('array'), contains: [{ ...rule, min: rule.max + 1, max: MANY }] }] : []),
    ]),
  required: (schema, at) => namesOf(own(schema, 'required'), inside(at, 'required')).map(absent),
  properties: (schema, at) =>
    namedOf(schema, 'properties', at).flatMap(([name, value]) =>
      value.schema === true ? [] : product([present(name)], () => [property(name, negation(value))]),
    ),
  minProperties: brokenCount('minProperties', (n) => (n === 0 ? null : { ...only('object'), maxProperties: n - 1 })),
  maxProperties: brokenCount('maxProperties', (n) => ({ ...only('object'), minProperties: n + 1 })),
  patternProperties: inexpressible('patternProperties'),
  additionalProperties: (schema, at, cases) => {
    const isClosed = own(schema, 'additionalProperties') === false && own(schema, 'patternProperties') === undefined;
    if (!isClosed) return inexpressible('additionalProperties')(schema, at, cases);
    return [{ ...only('object'), outside: [new Set(namedOf(schema, 'properties', at).map(([name]) => name))] }];
  },
  propertyNames: inexpressible('propertyNames'),
  unevaluatedProperties: inexpressible('unevaluatedProperties'),
  unevaluatedItems: inexpressible('unevaluatedItems'),
  $dynamicRef: inexpressible('$dynamicRef'),
  $recursiveRef: inexpressible('$recursiveRef'),
};

/** Cases in which a property is present and the rules that depend on it do not hold. */
function brokenDependents(schema: SchemaObject, key: string, at: Pointer, cases: CaseMaker): readonly Case[] {
  const named = own(schema, key);
  if (!isObject(named)) throw mistake(inside(at, key), 'must be an object');
  return Object.entries(named).flatMap(([name, value]) => {
    const pointer = inside(at, key, name);
    const broken = (): readonly Case[] => {
      if (key === 'dependentSchemas' || !Array.isArray(value)) return cases.of([negation(part(value, pointer))]);
      return namesOf(value, pointer).map(absent);
    };
    return product([present(name)], broken);
  });
}

/** All values but these. */
function allBut(values: readonly unknown[], at: Pointer): readonly Case[] {
  const types = new Set(values.map(typeOf));
  const otherTypes = TYPES.filter((type) => !types.has(type));
  const otherCases: Case[] = otherTypes.length > 0 ? [only(...otherTypes)] : [];
  for (const type of ['number', 'string'] as const) {
    const unlisted = values.filter((value) => typeof value === type) as (number | string)[];
    if (unlisted.length > 0) otherCases.push({ ...only(type), unlisted });
  }
  const truths = [true, false].filter((truth) => !values.includes(truth));
  if (types.has('boolean') && truths.length > 0) otherCases.push({ ...only('boolean'), listed: truths });
  for (const type of ['object', 'array'] as const) {
    const unlisted = values.flatMap((value, index) => (typeOf(value) === type ? [{ value, index }] : []));
    if (unlisted.length === 0) continue;
    otherCases.push(
      ...unlisted.reduce<readonly Case[]>(
        (combined, { value, index }) => product(combined, () => otherThan(value, inside(at, index))),
        [only(type)],
      ),
    );
  }
  return otherCases;
}

/** Objects or arrays that differ from the given one. */
function otherThan(value: unknown, at: Pointer): readonly Case[] {
  if (Array.isArray(value)) {
    const differing = value.map((item, index): Case => {
      const different = negation(part({ const: item }, at, index));
      const prefix = [...Array.from({ length: index }, () => part(true, '#anything')), different];
      return { ...only('array'), minItems: index + 1, lists: [{ prefix, items: undefined, declares: false }] };
    });
    const shorter: Case[] = value.length > 0 ? [{ ...only('array'), maxItems: value.length - 1 }] : [];
    return [...shorter, { ...only('array'), minItems: value.length + 1 }, ...differing];
  }
  const entries = Object.entries(value as object);
  return [
    ...entries.map(([name]) => absent(name)),
    ...entries.flatMap(([name, each]) =>
      product([present(name)], () => [property(name, negation(part({ const: each }, at, name)))]),
    ),
    { ...only('object'), minProperties: entries.length + 1 },
  ];
}
