import { GrammarError, quote } from './expression.ts';
import {
  type Case,
  conjunction,
  isContradiction,
  type ListRule,
  type ObjectRule,
  TYPES,
  type Type,
  typeOf,
  typesOf,
} from './json-schema-case.ts';
import { valueAt } from './json-schema-drafts.ts';
import {
  countOf,
  Inexpressible,
  inside,
  isObject,
  isSchema,
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
import { FORMATS } from './json-schema-string.ts';
import { parseRegex } from './regex.ts';

const MANY = Number.POSITIVE_INFINITY;

/** Maximum schemas that hold for one value at once, through '$ref', 'allOf' and the like. */
const MAX_DEPTH = 100;
/**
 * Keywords whose target another schema can replace, if it extends the schema with the keyword. Here no schema extends another, so '$ref' has the
 * same effect.
 */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['$dynamicRef', 'use $ref'],
  ['$recursiveRef', 'use $ref'],
]);

const NEEDS_OPPOSITE: ReadonlySet<string> = new Set(['oneOf', 'not', 'if']);

/** Called for a keyword that the grammar leaves open. */
type LeaveOpen = (keyword: string, at: Pointer) => void;

/** Turns schemas into alternative cases: resolves 'allOf', 'anyOf', 'not' and the like, and follows references. */
export class Cases implements CaseMaker {
  readonly #root: unknown;
  readonly #leaveOpen: LeaveOpen;
  readonly #isLoose: boolean;
  #depth = 0;

  /**
   * @param leaveOpen called for keywords that are too hard; the cases then hold more values than the schema
   * @param isLoose true to leave open all keywords that need the opposite of a schema
   */
  constructor(root: unknown, leaveOpen: LeaveOpen, isLoose: boolean) {
    this.#root = root;
    this.#leaveOpen = leaveOpen;
    this.#isLoose = isLoose;
  }

  /**
   * Cases for the values that fit all parts.
   *
   * @throws Inexpressible if there are too many cases, or if no grammar expresses any case of a negation
   */
  of(parts: readonly Part[]): readonly Case[] {
    const [first, ...otherParts] = parts;
    if (!first) return [{}];
    const cases = limited(this.#casesOf(first).filter((each) => !isContradiction(each)));
    return otherParts.reduce((all, each) => product(all, () => this.#casesOf(each)), cases);
  }

  /** The cases of a part: of its schema or, for a negated part, of the schema's opposite. */
  #casesOf({ schema, at, negated = false }: Part): readonly Case[] {
    if (!isSchema(schema)) throw mistake(at, 'a schema must be an object or a boolean');
    // No value fits `false` or the negation of `true`; every value fits the other two.
    if (typeof schema === 'boolean') return schema === negated ? [] : [{}];
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw mistake(
        at,
        `schemas that must all hold lead back to themselves, or are nested more than ${MAX_DEPTH} deep; write them as one`,
      );
    }
    try {
      return negated ? noneOf(schema, at, this).map(undeclared) : this.#positiveCases(schema, at);
    } finally {
      this.#depth -= 1;
    }
  }

  #positiveCases(schema: SchemaObject, at: Pointer): readonly Case[] {
    for (const [keyword, advice] of REFUSED) {
      if (own(schema, keyword) !== undefined)
        throw mistake(inside(at, keyword), `it cannot be kept while decoding; ${advice}`);
    }
    const rules = ownRules(schema, at);
    let cases: readonly Case[] = rules === null ? [] : [rules];
    const add = (
      keyword: string,
      makeCases: () => readonly Case[],
      makeFallback: () => readonly Case[] = () => [{}],
    ): void => {
      if (own(schema, keyword) === undefined) return;
      if (this.#isLoose && NEEDS_OPPOSITE.has(keyword)) {
        this.#leaveOpen(keyword, at);
        cases = product(cases, makeFallback);
        return;
      }
      try {
        cases = product(cases, makeCases);
      } catch (error) {
        if (!(error instanceof Inexpressible)) throw error;
        this.#leaveOpen(keyword, at);
        cases = product(cases, makeFallback);
      }
    };
    add('$ref', () => this.of([this.resolve(schema, at)]));
    add('allOf', () => this.of(listOf(schema, 'allOf', at)));
    add('anyOf', () => this.any(listOf(schema, 'anyOf', at)));
    add(
      'oneOf',
      () => this.#exactlyOne(listOf(schema, 'oneOf', at)),
      () => this.any(listOf(schema, 'oneOf', at)),
    );
    add('not', () => this.of([negation(part(own(schema, 'not'), at, 'not'))]));
    add('if', () => this.#conditional(schema, at));
    add('dependentRequired', () => this.dependent(schema, 'dependentRequired', at));
    add('dependentSchemas', () => this.dependent(schema, 'dependentSchemas', at));
    add('dependencies', () => this.dependent(schema, 'dependencies', at));
    if (own(schema, 'unevaluatedProperties') !== undefined) {
      const otherProperties = part(own(schema, 'unevaluatedProperties'), at, 'unevaluatedProperties');
      cases = cases.map((each) => closedObject(each, otherProperties));
    }
    if (own(schema, 'unevaluatedItems') !== undefined) {
      const otherItems = part(own(schema, 'unevaluatedItems'), at, 'unevaluatedItems');
      if (cases.some(({ contains }) => contains !== undefined)) this.#leaveOpen('unevaluatedItems', at);
      else cases = cases.map((each) => closedList(each, otherItems));
    }
    return cases;
  }

  any(parts: readonly Part[]): readonly Case[] {
    return limited(parts.flatMap((each) => this.of([each])));
  }

  /** For each option, the cases of its values that fit no other option. Options that certainly do not overlap need no exclusion. */
  #exactlyOne(options: readonly Part[]): readonly Case[] {
    const all = options.map((option) => this.of([option]));
    return limited(
      options.flatMap((_, index) => {
        const mine = all[index] ?? [];
        const otherOptions = options.filter((_, other) => other !== index && !areDisjoint(mine, all[other] ?? []));
        return product(mine, () => this.of(otherOptions.map(negation)));
      }),
    );
  }

  #conditional(schema: SchemaObject, at: Pointer): readonly Case[] {
    const condition = part(own(schema, 'if'), at, 'if');
    const branch = (key: string): Part[] => (own(schema, key) === undefined ? [] : [part(own(schema, key), at, key)]);
    const [consequence, alternative] = [branch('then'), branch('else')];
    if (consequence.length === 0 && alternative.length === 0) return [{}];
    return limited([...this.of([condition, ...consequence]), ...this.of([negation(condition), ...alternative])]);
  }

  /** Cases in which, for each name, the property is absent or the rules that depend on it hold. */
  dependent(schema: SchemaObject, key: string, at: Pointer): readonly Case[] {
    const named = own(schema, key);
    if (!isObject(named)) throw mistake(inside(at, key), 'must be an object');
    return Object.entries(named).reduce<readonly Case[]>(
      (cases, [name, value]) => {
        const pointer = inside(at, key, name);
        const dependentCases = (): readonly Case[] => {
          if (key === 'dependentSchemas' || !Array.isArray(value)) return this.of([part(value, pointer)]);
          return [{ required: new Set(namesOf(value, pointer)) }];
        };
        return product(cases, () => [absent(name), ...product([present(name)], dependentCases)]);
      },
      [{}],
    );
  }

  /** The target of a '$ref'. */
  resolve(schema: SchemaObject, at: Pointer): Part {
    const reference = own(schema, '$ref');
    if (typeof reference !== 'string') throw mistake(inside(at, '$ref'), 'must be a string');
    if (reference !== '#' && !reference.startsWith('#/')) {
      throw mistake(
        inside(at, '$ref'),
        `${quote(reference)} points elsewhere; only places within the schema are known`,
      );
    }
    const pointer = inside('#', ...reference.split('/').slice(1).map(unescapePointer));
    const target = valueAt(this.#root, pointer);
    if (target === undefined) throw mistake(inside(at, '$ref'), `${quote(reference)} points to nothing`);
    return part(target, pointer);
  }
}

/** True if certainly no value of `mine` fits `theirs`. Considers only the types of values that the grammar of `mine` makes. */
function areDisjoint(mine: readonly Case[], theirs: readonly Case[]): boolean {
  return mine.every((each) => {
    const narrow: Case = { ...each, types: typesOf(each) };
    return theirs.every((other) => conjunction(narrow, other) === null);
  });
}

/** A negated schema declares no properties and evaluates none, even if it is the negation of a negation. */
function undeclared(each: Case): Case {
  if (!each.objects && !each.lists) return each;
  return {
    ...each,
    objects: each.objects?.map((rule) => ({ ...rule, declares: false })),
    lists: each.lists?.map((rule) => ({ ...rule, declares: false })),
  };
}

/** Adds a rule for the properties that no rule of the case names. */
function closedObject(each: Case, otherProperties: Part): Case {
  const rules = (each.objects ?? []).filter(({ declares }) => declares);
  if (rules.some(({ additional }) => additional !== undefined)) return each;
  const evaluated = part(true, '#evaluated');
  const rule: ObjectRule = {
    properties: new Map(
      rules.flatMap(({ properties }) => [...properties.keys()].map((name) => [name, evaluated] as const)),
    ),
    patterns: rules.flatMap(({ patterns }) => patterns.map(([pattern]) => [pattern, evaluated] as const)),
    additional: otherProperties,
    declares: true,
  };
  return { ...each, objects: [...(each.objects ?? []), rule] };
}

/** Adds a rule for the items after the longest prefix. */
function closedList(each: Case, otherItems: Part): Case {
  const rules = (each.lists ?? []).filter(({ declares }) => declares);
  if (rules.some(({ items }) => items !== undefined)) return each;
  const length = Math.max(0, ...rules.map(({ prefix }) => prefix.length));
  const prefix = Array.from({ length }, () => part(true, '#evaluated'));
  const rule: ListRule = { prefix, items: otherItems, declares: true };
  return { ...each, lists: [...(each.lists ?? []), rule] };
}

function unescapePointer(step: string): string {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return step;
  }
}

/** Maximum number of cases of one value: alternatives multiply. */
const MAX_CASES = 256;
/** Maximum pairs of cases that `product` tries. Contradictory pairs drop out, so there may be more pairs than cases. */
const MAX_PAIRS = 16 * MAX_CASES;

/** Makes the cases of schemas. */
interface CaseMaker {
  /** Cases for the values that fit all parts. */
  of(parts: readonly Part[]): readonly Case[];
  /** Cases for the values that fit one of the parts. */
  any(parts: readonly Part[]): readonly Case[];
  /** The target of a '$ref'. */
  resolve(schema: SchemaObject, at: Pointer): Part;
}

/** Combines each case of `cases` with each of `more`. @param more is not called when there is nothing to combine */
function product(cases: readonly Case[], more: () => readonly Case[]): readonly Case[] {
  if (cases.length === 0) return cases;
  const others = more();
  if (cases.length * others.length > MAX_PAIRS) throw new Inexpressible('too many cases');
  return limited(cases.flatMap((a) => others.flatMap((b) => conjunction(a, b) ?? [])));
}

function limited(cases: readonly Case[]): readonly Case[] {
  if (cases.length > MAX_CASES) throw new Inexpressible(`more than ${MAX_CASES} cases`);
  return cases;
}

function present(name: string): Case {
  return { types: new Set(['object']), required: new Set([name]) };
}

function absent(name: string): Case {
  return property(name, part(false, `#absent ${name}`));
}

/** Objects without the property, or whose property fits `value`. */
function property(name: string, value: Part): Case {
  const rule = { properties: new Map([[name, value]]), patterns: [], additional: undefined, declares: false };
  return { types: new Set(['object']), objects: [rule] };
}

/** The rules of a schema's own keywords, or null if they contradict each other. */
function ownRules(schema: SchemaObject, at: Pointer): Case | null {
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

function writtenTypes(schema: SchemaObject, at: Pointer): readonly (Type | 'integer')[] {
  const writtenType = own(schema, 'type');
  const knownTypes: readonly (Type | 'integer')[] = [...TYPES, 'integer'];
  return (Array.isArray(writtenType) ? writtenType : [writtenType]).map((type) => {
    const found = knownTypes.find((name) => name === type);
    if (found) return found;
    throw mistake(inside(at, 'type'), `${JSON.stringify(type)} is not a type; known: ${knownTypes.join(', ')}`);
  });
}

/** The value of 'multipleOf'. */
function stepOf(schema: SchemaObject, at: Pointer): number {
  const step = numberOf(schema, 'multipleOf', at) ?? 0;
  if (step > 0) return step;
  throw mistake(inside(at, 'multipleOf'), 'must be more than 0');
}

function containsRules(schema: SchemaObject, at: Pointer): Case['contains'] {
  const [min, max] = [countOf(schema, 'minContains', at) ?? 1, countOf(schema, 'maxContains', at) ?? MANY];
  if (min === 0 && max === MANY) return undefined;
  return [{ item: part(own(schema, 'contains'), at, 'contains'), from: 0, min, max }];
}

type Negation = (schema: SchemaObject, at: Pointer, cases: CaseMaker) => readonly Case[];

/**
 * Cases of the values that do not fit a schema: they break one of its keywords. Leaves out keywords whose opposite no grammar can express.
 *
 * @throws Inexpressible if such a keyword is left out and no case remains
 */
function noneOf(schema: SchemaObject, at: Pointer, cases: CaseMaker): readonly Case[] {
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
