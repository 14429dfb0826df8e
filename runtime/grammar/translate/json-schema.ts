import { invalid, quote, tooLarge } from './error.ts';
import { choice, type Expression, type Grammar, RuleSet, sequence, text } from './expression.ts';
import { BOOLEAN, escaped, JsonRules, literal, NULL } from './json.ts';
import { type Bound, decimals, integers } from './json-number.ts';
import { arrayExpression } from './json-schema-array.ts';
import { disjoint } from './json-schema-disjoint.ts';
import { FORMATS } from './json-schema-formats.ts';
import { merge } from './json-schema-merge.ts';
import {
  ASSERTIONS,
  assertions,
  inside,
  isObject,
  isSchema,
  mistake,
  own,
  type Pointer,
  pick,
  REFUSED,
  type Schema,
  type SchemaObject,
  shortened,
} from './json-schema-object.ts';
import { objectExpression } from './json-schema-properties.ts';
import { parseRegex, regex, regexSearch } from './regex.ts';

const MAX_DEPTH = 100;
const MAX_RULES = 20_000;
const MANY = Number.POSITIVE_INFINITY;
const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'] as const;
type Type = (typeof TYPES)[number];

/** The grammar of any JSON. */
export function jsonGrammar(): Grammar {
  const rules = newRules();
  return rules.grammar(new JsonRules(rules).value);
}

/**
 * A grammar whose every text is JSON that the schema (2020-12, read the usual way of decoding) accepts. It is narrower than the schema:
 * declared properties come in their order, others only where 'additionalProperties' is written, a tuple has all of its 'prefixItems' unless
 * 'minItems' is written. The translation refuses a keyword that a grammar cannot enforce.
 *
 * @throws GrammarError with the place in the schema
 */
export function jsonSchemaGrammar(source: string): Grammar {
  let root: unknown;
  try {
    root = JSON.parse(source);
  } catch (error) {
    throw invalid(`JSON schema: it is no JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const rules = newRules();
  const translator = new SchemaTranslator(rules, root);
  return rules.grammar(translator.translate(root, '#'));
}

function newRules(): RuleSet {
  return new RuleSet(MAX_RULES, () =>
    tooLarge(`JSON schema: it makes more than ${MAX_RULES} rules; use a smaller one`),
  );
}

/** Context for translating the parts of a schema. */
export interface Translation {
  readonly json: JsonRules;
  /** @param schema any value; invalid schemas are refused */
  translate(schema: unknown, at: Pointer): Expression;
  /** A non-negative integer keyword, if it is written. */
  count(schema: SchemaObject, key: string, at: Pointer): number | undefined;
}

class SchemaTranslator implements Translation {
  readonly json: JsonRules;
  readonly #rules: RuleSet;
  readonly #root: unknown;
  /** Rules of the targets of '$ref'. */
  readonly #referenced = new Map<string, Expression>();
  #depth = 0;

  constructor(rules: RuleSet, root: unknown) {
    this.#rules = rules;
    this.#root = root;
    this.json = new JsonRules(rules);
  }

  translate(schema: unknown, at: Pointer): Expression {
    if (!isSchema(schema)) throw mistake(at, 'a schema must be an object or a boolean');
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH)
      throw tooLarge(`JSON schema, ${shortened(at)}: nested more than ${MAX_DEPTH} deep; use $ref`);
    try {
      if (typeof schema === 'boolean') return schema ? this.json.value : choice([]);
      return this.#object(schema, at);
    } finally {
      this.#depth -= 1;
    }
  }

  count(schema: SchemaObject, key: string, at: Pointer): number | undefined {
    const value = this.#number(schema, key, at);
    if (value === undefined || (Number.isSafeInteger(value) && value >= 0)) return value;
    throw mistake(inside(at, key), 'must be an integer of at least 0');
  }

  #object(schema: SchemaObject, at: Pointer): Expression {
    for (const [keyword, advice] of REFUSED) {
      const value = own(schema, keyword);
      if (value !== undefined && value !== false) {
        throw mistake(at, `${keyword} cannot be kept while decoding; ${advice}`);
      }
    }
    const reference = own(schema, '$ref');
    if (reference !== undefined) return this.#reference(schema, reference, at);
    if (own(schema, 'allOf') !== undefined) return this.translate(this.#allOf(schema, at), at);
    for (const key of ['anyOf', 'oneOf']) {
      if (own(schema, key) !== undefined) return this.#alternatives(schema, key, at);
    }
    if (own(schema, 'const') !== undefined) return this.#listed(schema, [own(schema, 'const')], 'const', at);
    const listed = own(schema, 'enum');
    if (listed === undefined) return this.#typed(schema, at);
    if (!Array.isArray(listed)) throw mistake(inside(at, 'enum'), 'must be an array');
    return this.#listed(schema, listed, 'enum', at);
  }

  #reference(schema: SchemaObject, reference: unknown, at: Pointer): Expression {
    if (typeof reference !== 'string') throw mistake(inside(at, '$ref'), 'must be a string');
    const beside = pick(schema, assertions(schema, ['$ref']));
    if (Object.keys(beside).length > 0) {
      return this.translate(merge(this.#flat(this.#resolve(reference, at), reference), beside, at), at);
    }
    const known = this.#referenced.get(reference);
    if (known) return known;
    const name = `ref.${reference}`;
    this.#referenced.set(reference, { kind: 'rule', name });
    return this.#rules.define(name, this.translate(this.#resolve(reference, at), reference));
  }

  #resolve(reference: string, at: Pointer): unknown {
    if (reference !== '#' && !reference.startsWith('#/')) {
      throw mistake(at, `$ref ${quote(reference)} points elsewhere; only #/… within the schema is known`);
    }
    let target: unknown = this.#root;
    for (const part of reference.split('/').slice(1)) {
      const key = unescapePointer(part);
      target = Array.isArray(target) ? target[Number(key)] : isObject(target) ? own(target, key) : undefined;
      if (target === undefined) throw mistake(at, `$ref ${quote(reference)} points to nothing`);
    }
    return target;
  }

  /** An equivalent schema without '$ref' and 'allOf' at its top. */
  #flat(schema: unknown, at: Pointer): Schema {
    if (!isSchema(schema)) throw mistake(at, 'a schema must be an object or a boolean');
    if (typeof schema === 'boolean') return schema;
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH)
      throw mistake(
        at,
        `schemas that must all hold lead back to themselves, or are nested more than ${MAX_DEPTH} deep; write them as one`,
      );
    try {
      const reference = own(schema, '$ref');
      if (typeof reference === 'string') {
        return merge(
          this.#flat(this.#resolve(reference, at), reference),
          pick(schema, assertions(schema, ['$ref'])),
          at,
        );
      }
      return own(schema, 'allOf') === undefined ? schema : this.#allOf(schema, at);
    } finally {
      this.#depth -= 1;
    }
  }

  #allOf(schema: SchemaObject, at: Pointer): Schema {
    const all = this.#list(schema, 'allOf', at);
    const rest: Schema = pick(schema, assertions(schema, ['allOf']));
    return all.reduce<Schema>(
      (merged, part, index) => merge(merged, this.#flat(part, inside(at, 'allOf', index)), inside(at, 'allOf', index)),
      rest,
    );
  }

  #alternatives(schema: SchemaObject, key: string, at: Pointer): Expression {
    const list = this.#list(schema, key, at);
    const beside = pick(schema, assertions(schema, [key]));
    const place = (index: number) => inside(at, key, index);
    if (Object.keys(beside).length === 0 && key === 'anyOf') {
      return choice(list.map((option, index) => this.translate(option, place(index))));
    }
    const options = list.map((option, index) => merge(beside, this.#flat(option, place(index)), place(index)));
    if (key === 'oneOf' && !disjoint(options)) {
      throw mistake(
        inside(at, key),
        'a value might fit more than one; use anyOf, other types, or a required property with its own const in each',
      );
    }
    return choice(options.map((option, index) => this.translate(option, place(index))));
  }

  #list(schema: SchemaObject, key: string, at: Pointer): readonly unknown[] {
    const list = own(schema, key);
    if (Array.isArray(list) && list.length > 0) return list;
    throw mistake(inside(at, key), 'must be an array with at least one schema');
  }

  /** Values of 'const' or 'enum' that match the schema's 'type'. */
  #listed(schema: SchemaObject, values: readonly unknown[], key: string, at: Pointer): Expression {
    const beside = assertions(schema, [key, 'type']);
    if (beside.length > 0) {
      throw mistake(at, `${beside.join(', ')} beside ${key} is not kept; list only the values that fit`);
    }
    const types = this.#types(schema, at);
    const fitting = types ? values.filter((value) => types.some((type) => isOfType(value, type))) : values;
    return choice(fitting.map(literal));
  }

  #typed(schema: SchemaObject, at: Pointer): Expression {
    const types = this.#types(schema, at) ?? inferred(schema);
    if (types === undefined) return this.json.value;
    const kept = types.includes('number') ? types.filter((type) => type !== 'integer') : types;
    return choice(kept.map((type) => this.#ofType(type, schema, at)));
  }

  #types(schema: SchemaObject, at: Pointer): readonly Type[] | undefined {
    const written = own(schema, 'type');
    if (written === undefined) return undefined;
    return (Array.isArray(written) ? written : [written]).map((type) => {
      const known = TYPES.find((name) => name === type);
      if (known) return known;
      throw mistake(inside(at, 'type'), `${JSON.stringify(type)} is no type; known: ${TYPES.join(', ')}`);
    });
  }

  #ofType(type: Type, schema: SchemaObject, at: Pointer): Expression {
    switch (type) {
      case 'object':
        return objectExpression(this, schema, at);
      case 'array':
        return arrayExpression(this, schema, at);
      case 'string':
        return this.#string(schema, at);
      case 'number':
      case 'integer':
        return this.#numeric(type, schema, at);
      case 'boolean':
        return BOOLEAN;
      case 'null':
        return NULL;
    }
  }

  #string(schema: SchemaObject, at: Pointer): Expression {
    const written = assertions(schema).filter((key) => (ASSERTIONS.string as readonly string[]).includes(key));
    if (written.length === 0) return this.json.string;
    const pattern = own(schema, 'pattern');
    const format = own(schema, 'format');
    if ((pattern !== undefined || format !== undefined) && written.length > 1) {
      throw mistake(at, `${written.join(' and ')} cannot be kept together; write one pattern`);
    }
    if (pattern !== undefined) return this.#pattern(pattern, inside(at, 'pattern'));
    if (format !== undefined) {
      const known = typeof format === 'string' ? FORMATS.get(format) : undefined;
      if (known !== undefined) return quoted(regex(known));
      const names = [...FORMATS.keys()].join(', ');
      throw mistake(inside(at, 'format'), `${JSON.stringify(format)} is not kept; known: ${names}`);
    }
    return this.json.stringOf(this.count(schema, 'minLength', at) ?? 0, this.count(schema, 'maxLength', at) ?? MANY);
  }

  #pattern(pattern: unknown, at: Pointer): Expression {
    if (typeof pattern !== 'string') throw mistake(at, 'must be a string');
    parseRegex(pattern);
    return quoted(regexSearch(pattern));
  }

  #numeric(type: 'number' | 'integer', schema: SchemaObject, at: Pointer): Expression {
    const bound = (inclusive: string, exclusive: string, sign: 1 | -1): Bound | undefined => {
      const loose = this.#number(schema, inclusive, at);
      const strict = this.#number(schema, exclusive, at);
      if (strict !== undefined && (loose === undefined || sign * strict >= sign * loose)) {
        return { value: strict, exclusive: true };
      }
      return loose === undefined ? undefined : { value: loose, exclusive: false };
    };
    const min = bound('minimum', 'exclusiveMinimum', 1);
    const max = bound('maximum', 'exclusiveMaximum', -1);
    if (type === 'integer') return integers(min, max);
    return min || max ? decimals(min, max) : this.json.number;
  }

  #number(schema: SchemaObject, key: string, at: Pointer): number | undefined {
    const value = own(schema, key);
    if (value === undefined || (typeof value === 'number' && Number.isFinite(value))) return value;
    throw mistake(inside(at, key), 'must be a number');
  }
}

/** Types of a schema without 'type', inferred from its keywords; undefined without such keywords. */
function inferred(schema: SchemaObject): readonly Type[] | undefined {
  const types = (['object', 'array', 'string', 'number'] as const).filter((type) =>
    ASSERTIONS[type].some((key) => own(schema, key) !== undefined),
  );
  return types.length > 0 ? types : undefined;
}

function isOfType(value: unknown, type: Type): boolean {
  switch (type) {
    case 'object':
      return isObject(value);
    case 'array':
      return Array.isArray(value);
    case 'integer':
      return Number.isInteger(value);
    case 'null':
      return value === null;
    default:
      return typeof value === type;
  }
}

function quoted(expression: Expression): Expression {
  return sequence([text('"'), escaped(expression), text('"')]);
}

function unescapePointer(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return part;
  }
}
