import { quote } from './error.ts';
import {
  type Case,
  conjunction,
  isContradiction,
  type ListRule,
  type ObjectRule,
  typesOf,
} from './json-schema-case.ts';
import { absent, type CaseMaker, limited, present, product } from './json-schema-combine.ts';
import { valueAt } from './json-schema-drafts.ts';
import { ownRules } from './json-schema-keywords.ts';
import { noneOf } from './json-schema-negation.ts';
import {
  Inexpressible,
  inside,
  isObject,
  isSchema,
  listOf,
  mistake,
  namesOf,
  negation,
  own,
  type Part,
  type Pointer,
  part,
  type SchemaObject,
} from './json-schema-object.ts';

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
export type LeaveOpen = (keyword: string, at: Pointer) => void;

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
