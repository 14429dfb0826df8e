import { quote } from './error.ts';
import {
  type Case,
  conjunction,
  type ListRule,
  type ObjectRule,
  TYPES,
  type Type,
  typesOf,
} from './json-schema-case.ts';
import { noneOf } from './json-schema-negation.ts';
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

/** Most schemas that hold for one value at once, through '$ref', 'allOf' and the like. */
const MAX_DEPTH = 100;
/** Most cases of one value: alternatives multiply. */
const MAX_CASES = 256;
const MANY = Number.POSITIVE_INFINITY;
/** Keywords that hold for other parts of a schema than those in which they stand; no other schema may extend ours. */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['$dynamicRef', 'use $ref'],
  ['$recursiveRef', 'use $ref'],
]);

/** A part that the grammar leaves open. */
export type LeaveOpen = (keyword: string, at: Pointer) => void;

/** The alternatives of schemas, without keywords that combine schemas. References are followed. */
export class Cases {
  readonly #root: unknown;
  readonly #leaveOpen: LeaveOpen;
  #depth = 0;

  /** @param leaveOpen called for keywords that are too hard; the cases then hold more values than the schema */
  constructor(root: unknown, leaveOpen: LeaveOpen) {
    this.#root = root;
    this.#leaveOpen = leaveOpen;
  }

  /** Cases for the values that fit all parts. @throws Inexpressible if there are too many cases, or a negation has none that we know */
  of(parts: readonly Part[]): readonly Case[] {
    return parts.reduce<readonly Case[]>((cases, each) => product(cases, () => this.#one(each)), [{}]);
  }

  /** The cases of a part that must hold, or of one that must not. */
  #one({ schema, at, negated = false }: Part): readonly Case[] {
    if (!isSchema(schema)) throw mistake(at, 'a schema must be an object or a boolean');
    if (typeof schema === 'boolean') return schema === negated ? [] : [{}];
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw mistake(
        at,
        `schemas that must all hold lead back to themselves, or are nested more than ${MAX_DEPTH} deep; write them as one`,
      );
    }
    try {
      return negated ? noneOf(schema, at, this).map(undeclared) : this.#some(schema, at);
    } finally {
      this.#depth -= 1;
    }
  }

  #some(schema: SchemaObject, at: Pointer): readonly Case[] {
    for (const [keyword, advice] of REFUSED) {
      if (own(schema, keyword) !== undefined) throw mistake(at, `${keyword} cannot be kept while decoding; ${advice}`);
    }
    const rules = ownRules(schema, at);
    let cases: readonly Case[] = rules === null ? [] : [rules];
    const add = (keyword: string, more: () => readonly Case[], instead: () => readonly Case[] = () => [{}]): void => {
      if (own(schema, keyword) === undefined) return;
      try {
        cases = product(cases, more);
      } catch (error) {
        if (!(error instanceof Inexpressible)) throw error;
        this.#leaveOpen(keyword, at);
        cases = product(cases, instead);
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
      const rest = part(own(schema, 'unevaluatedProperties'), at, 'unevaluatedProperties');
      cases = cases.map((each) => closedObject(each, rest));
    }
    if (own(schema, 'unevaluatedItems') !== undefined) {
      const rest = part(own(schema, 'unevaluatedItems'), at, 'unevaluatedItems');
      if (cases.some(({ contains }) => contains !== undefined)) this.#leaveOpen('unevaluatedItems', at);
      else cases = cases.map((each) => closedList(each, rest));
    }
    return cases;
  }

  any(parts: readonly Part[]): readonly Case[] {
    return limited(parts.flatMap((each) => this.of([each])));
  }

  /** Each option without the values of those others that it might share values with. */
  #exactlyOne(options: readonly Part[]): readonly Case[] {
    const all = options.map((option) => this.of([option]));
    return limited(
      options.flatMap((_, index) => {
        const mine = all[index] ?? [];
        const others = options.filter((_, other) => other !== index && !areDisjoint(mine, all[other] ?? []));
        return product(mine, () => this.of(others.map(negation)));
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

  /** For each name: the property is absent, or what depends on it holds. */
  dependent(schema: SchemaObject, key: string, at: Pointer): readonly Case[] {
    const named = own(schema, key);
    if (!isObject(named)) throw mistake(inside(at, key), 'must be an object');
    return Object.entries(named).reduce<readonly Case[]>(
      (cases, [name, value]) => {
        const place = inside(at, key, name);
        const then = (): readonly Case[] => {
          if (key === 'dependentSchemas' || !Array.isArray(value)) return this.of([part(value, place)]);
          return [{ required: new Set(namesOf(value, place)) }];
        };
        return product(cases, () => [absent(name), ...product([present(name)], then)]);
      },
      [{}],
    );
  }

  /** The target of a '$ref'. */
  resolve(schema: SchemaObject, at: Pointer): Part {
    const reference = own(schema, '$ref');
    if (typeof reference !== 'string') throw mistake(inside(at, '$ref'), 'must be a string');
    if (reference !== '#' && !reference.startsWith('#/')) {
      throw mistake(at, `$ref ${quote(reference)} points elsewhere; only #/… within the schema is known`);
    }
    let target: unknown = this.#root;
    const elsewhere = (): Error =>
      mistake(at, `$ref ${quote(reference)} stands in or leads into a schema with its own $id; remove the $id`);
    if (at.startsWith('#/') && this.#hasOwnId(at.split('/').slice(1))) throw elsewhere();
    const steps = reference.split('/').slice(1);
    if (this.#hasOwnId(steps.map((step) => unescapePointer(step).replaceAll('~', '~0').replaceAll('/', '~1')))) {
      throw elsewhere();
    }
    for (const step of steps) {
      const key = unescapePointer(step);
      target = Array.isArray(target) ? target[Number(key)] : isObject(target) ? own(target, key) : undefined;
      if (target === undefined) throw mistake(at, `$ref ${quote(reference)} points to nothing`);
    }
    return part(target, reference);
  }

  /** True if a schema on the way, other than the root, has an '$id': references would start there. */
  #hasOwnId(steps: readonly string[]): boolean {
    let target: unknown = this.#root;
    for (const step of steps) {
      const key = step.replaceAll('~1', '/').replaceAll('~0', '~');
      target = Array.isArray(target) ? target[Number(key)] : isObject(target) ? own(target, key) : undefined;
      if (isObject(target) && typeof own(target, '$id') === 'string') return true;
    }
    return false;
  }
}

/** Cases of both. @param more is not called when there is nothing to combine */
export function product(cases: readonly Case[], more: () => readonly Case[]): readonly Case[] {
  if (cases.length === 0) return cases;
  const others = more();
  if (cases.length * others.length > MAX_CASES * 16) throw new Inexpressible('too many cases');
  return limited(cases.flatMap((a) => others.flatMap((b) => conjunction(a, b) ?? [])));
}

export function limited(cases: readonly Case[]): readonly Case[] {
  if (cases.length > MAX_CASES) throw new Inexpressible(`more than ${MAX_CASES} cases`);
  return cases;
}

export function present(name: string): Case {
  return { types: new Set(['object']), required: new Set([name]) };
}

export function absent(name: string): Case {
  return property(name, part(false, `#absent ${name}`));
}

/** Objects whose property fits, if they have it. */
export function property(name: string, value: Part): Case {
  const rule = { properties: new Map([[name, value]]), patterns: [], additional: undefined, declares: false };
  return { types: new Set(['object']), objects: [rule] };
}

/** True if no value of `mine` fits `theirs`. Values of `mine` are of the types that its grammar makes. */
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
function closedObject(each: Case, rest: Part): Case {
  const rules = (each.objects ?? []).filter(({ declares }) => declares);
  if (rules.some(({ additional }) => additional !== undefined)) return each;
  const known = part(true, '#evaluated');
  const rule: ObjectRule = {
    properties: new Map(
      rules.flatMap(({ properties }) => [...properties.keys()].map((name) => [name, known] as const)),
    ),
    patterns: rules.flatMap(({ patterns }) => patterns.map(([pattern]) => [pattern, known] as const)),
    additional: rest,
    declares: true,
  };
  return { ...each, objects: [...(each.objects ?? []), rule] };
}

function closedList(each: Case, rest: Part): Case {
  const rules = (each.lists ?? []).filter(({ declares }) => declares);
  if (rules.some(({ items }) => items !== undefined)) return each;
  const length = Math.max(0, ...rules.map(({ prefix }) => prefix.length));
  const prefix = Array.from({ length }, () => part(true, '#evaluated'));
  const rule: ListRule = { prefix, items: rest, declares: true };
  return { ...each, lists: [...(each.lists ?? []), rule] };
}

/** The rules of a schema's own keywords, or null if they contradict each other. */
function ownRules(schema: SchemaObject, at: Pointer): Case | null {
  const rules: { -readonly [K in keyof Case]: Case[K] } = {};
  const has = (...keys: readonly string[]): boolean => keys.some((key) => own(schema, key) !== undefined);
  if (has('type')) {
    const types = writtenTypes(schema, at);
    rules.types = new Set(types.map((type) => (type === 'integer' ? 'number' : type)));
    if (types.includes('integer') && !types.includes('number')) rules.integers = true;
  }
  if (has('enum', 'const')) {
    const list = own(schema, 'enum');
    if (list !== undefined && !Array.isArray(list)) throw mistake(inside(at, 'enum'), 'must be an array');
    const one: Case = has('const') ? { listed: [own(schema, 'const')] } : {};
    rules.listed = list === undefined ? one.listed : (conjunction({ listed: list }, one)?.listed ?? []);
  }
  const low = [bound(schema, 'minimum', false, at), bound(schema, 'exclusiveMinimum', true, at)];
  const high = [bound(schema, 'maximum', false, at), bound(schema, 'exclusiveMaximum', true, at)];
  if (has('multipleOf')) rules.multiples = [{ of: stepOf(schema, at), kept: true }];
  rules.minLength = countOf(schema, 'minLength', at);
  rules.maxLength = countOf(schema, 'maxLength', at);
  const pattern = own(schema, 'pattern');
  if (pattern !== undefined) {
    if (typeof pattern !== 'string') throw mistake(inside(at, 'pattern'), 'must be a string');
    rules.patterns = [{ pattern, kept: true }];
  }
  if (has('format')) rules.formats = [String(own(schema, 'format'))];
  rules.minItems = countOf(schema, 'minItems', at);
  rules.maxItems = countOf(schema, 'maxItems', at);
  if (own(schema, 'uniqueItems') === true) rules.unique = true;
  if (has('prefixItems', 'items')) {
    const items = has('items') ? part(own(schema, 'items'), at, 'items') : undefined;
    rules.lists = [{ prefix: listOf(schema, 'prefixItems', at, 0), items, declares: true }];
  }
  if (has('contains')) rules.contains = containsRules(schema, at);
  if (has('required')) rules.required = new Set(namesOf(own(schema, 'required'), inside(at, 'required')));
  rules.minProperties = countOf(schema, 'minProperties', at);
  rules.maxProperties = countOf(schema, 'maxProperties', at);
  if (has('properties', 'patternProperties', 'additionalProperties')) {
    const rest = own(schema, 'additionalProperties');
    rules.objects = [
      {
        properties: new Map(namedOf(schema, 'properties', at)),
        patterns: namedOf(schema, 'patternProperties', at),
        additional: rest === undefined ? undefined : part(rest, at, 'additionalProperties'),
        declares: true,
      },
    ];
  }
  if (has('propertyNames')) rules.names = [part(own(schema, 'propertyNames'), at, 'propertyNames')];
  return [...low.map((each) => ({ low: each })), ...high.map((each) => ({ high: each }))].reduce<Case | null>(
    (joined, each) => joined && conjunction(joined, each),
    conjunction(rules, {}),
  );
}

export function writtenTypes(schema: SchemaObject, at: Pointer): readonly (Type | 'integer')[] {
  const written = own(schema, 'type');
  const known: readonly (Type | 'integer')[] = [...TYPES, 'integer'];
  return (Array.isArray(written) ? written : [written]).map((type) => {
    const found = known.find((name) => name === type);
    if (found) return found;
    throw mistake(inside(at, 'type'), `${JSON.stringify(type)} is no type; known: ${known.join(', ')}`);
  });
}

function bound(schema: SchemaObject, key: string, exclusive: boolean, at: Pointer) {
  const value = numberOf(schema, key, at);
  return value === undefined ? undefined : { value, exclusive };
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

function unescapePointer(step: string): string {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return step;
  }
}
