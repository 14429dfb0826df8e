import { StepsExhausted, TooDeepError } from '#scheduler/functions/schema/budget.ts';
import { type JsonSchema, pointerTo, SchemaError } from '#scheduler/functions/schema/compiled.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { PatternError } from '#scheduler/functions/schema/pattern.ts';
import { SchemaValidator } from '#scheduler/functions/schema/validator.ts';
import {
  type Check,
  choice,
  type Expression,
  type Grammar,
  GrammarError,
  invalid,
  maxStates,
  NEVER,
  RuleSet,
  tooLarge,
} from './expression.ts';
import { BOOLEAN, JsonRules, literal, NULL } from './json.ts';
import { type Case, TYPES, type Type, typesOf } from './json-schema-case.ts';
import { Cases } from './json-schema-cases.ts';
import { modern } from './json-schema-drafts.ts';
import { numberExpression } from './json-schema-number.ts';
import {
  distinct,
  Inexpressible,
  isObject,
  isSchema,
  keyOf,
  listOf,
  mistake,
  type Part,
  type Pointer,
  part,
  type SchemaObject,
  shortened,
} from './json-schema-object.ts';
import { stringExpression } from './json-schema-string.ts';
import { arrayExpression, objectExpression, type Translation } from './json-schema-structures.ts';
import { fitsCase } from './json-schema-values.ts';
import { BoundedCache } from './known.ts';

const MAX_DEPTH = 100;
const MAX_RULES = 20_000;
/** Maximum states of a grammar with exact alternatives. */
const MAX_EXACT_STATES = 300_000;
const GUIDANCE = 'x-guidance';

/** The grammar of any JSON. */
export function jsonGrammar(): Grammar {
  const rules = newRules();
  return { ...rules.grammar(new JsonRules(rules).value), isJson: true };
}

/**
 * A grammar for a schema (2020-12): each of its texts that passes the grammar's `check` is JSON that the schema accepts. The grammar is narrower than
 * the schema: without 'type', values have the types that the other keywords limit, and a tuple has all of its 'prefixItems' unless 'minItems' is
 * written. The grammar has a `check` only if the schema has keywords that the grammar cannot express. 'x-guidance' at the root has options.
 *
 * @throws GrammarError with the place in the schema
 */
export function jsonSchemaGrammar(source: string): Grammar {
  let root: unknown;
  try {
    root = modern(jsonValue(source));
  } catch (error) {
    throw invalid(`JSON schema: it is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const exact = attemptExact(root);
  if (exact && maxStates(exact.rules.values()) <= MAX_EXACT_STATES) return exact;
  return grammarOf(root, true);
}

/** The grammar with exact alternatives; null if it is too large. */
function attemptExact(root: unknown): Grammar | null {
  try {
    return grammarOf(root, false);
  } catch (error) {
    if (error instanceof GrammarError && error.tag === 'limit-exceeded') return null;
    throw error;
  }
}

/** @param isLoose true to leave 'oneOf', 'not' and 'if' to the check at the end */
function grammarOf(root: unknown, isLoose: boolean): Grammar {
  const rules = newRules();
  const options = optionsOf(root);
  const translator = new SchemaTranslator(rules, root, options, isLoose);
  const grammar = { ...rules.grammar(translator.translate([part(root, '#')])), isJson: true };
  if (translator.open.length === 0) return grammar;
  const check = checkOf(root, translator.open);
  return options.isChecked ? { ...grammar, check } : grammar;
}

/** The options of a schema, for which its root asks with 'x-guidance'. */
interface Options {
  /** True for JSON without whitespace, as in llguidance: `"x-guidance": {"whitespace_flexible": false}`. */
  readonly isCompact: boolean;
  /** True for objects whose declared properties come in their order, before others: `"x-guidance": {"ordered": true}`. */
  readonly isOrdered: boolean;
  /** False for texts that need not keep the keywords that the grammar leaves open: `"x-guidance": {"checked": false}`. */
  readonly isChecked: boolean;
}

/** @throws GrammarError for other options of 'x-guidance' */
function optionsOf(root: unknown): Options {
  const options = (isObject(root) ? root[GUIDANCE] : undefined) ?? {};
  const at = `#/${GUIDANCE}`;
  if (!isObject(options)) throw mistake(at, 'it must be an object');
  const {
    whitespace_flexible: isFlexible = true,
    ordered: isOrdered = false,
    checked: isChecked = true,
    ...otherOptions
  } = options;
  if (typeof isFlexible !== 'boolean') throw mistake(at, 'whitespace_flexible must be true or false');
  if (typeof isOrdered !== 'boolean') throw mistake(at, 'ordered must be true or false');
  if (typeof isChecked !== 'boolean') throw mistake(at, 'checked must be true or false');
  const [unknownOption] = Object.keys(otherOptions);
  if (unknownOption !== undefined)
    throw mistake(at, `"${shortened(unknownOption)}" is not supported; whitespace_flexible, ordered and checked are`);
  return { isCompact: !isFlexible, isOrdered, isChecked };
}

function newRules(): RuleSet {
  return new RuleSet(MAX_RULES, () =>
    tooLarge(`JSON schema: it makes more than ${MAX_RULES} rules; use a smaller one`),
  );
}

class SchemaTranslator implements Translation {
  readonly json: JsonRules;
  readonly cases: Cases;
  readonly isOrdered: boolean;
  readonly open: OpenKeyword[] = [];
  readonly #rules: RuleSet;
  /** Translated parts by their keys, and the rules of references by name. */
  readonly #expressions = new Map<string, Expression>();
  #depth = 0;

  constructor(rules: RuleSet, root: unknown, { isCompact, isOrdered }: Options, isLoose: boolean) {
    this.#rules = rules;
    this.isOrdered = isOrdered;
    this.json = new JsonRules(rules, isCompact);
    this.cases = new Cases(root, (keyword, at) => this.leaveOpen(keyword, at), isLoose);
  }

  leaveOpen(keyword: string, at: Pointer): void {
    this.open.push({ keyword, at });
  }

  translate(parts: readonly Part[], strict = false): Expression {
    // Every value fits `true` and the negation of `false`, so these parts are left out.
    const distinctParts = distinct(parts).filter(({ schema, negated = false }) => schema !== !negated);
    const [first, ...furtherParts] = distinctParts;
    if (!first) return this.json.value;
    const key = JSON.stringify(distinctParts.map(keyOf).sort());
    const known = this.#expressions.get(key);
    if (known) return known;
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH)
      throw tooLarge(`JSON schema, ${shortened(first.at)}: nested more than ${MAX_DEPTH} deep; use $ref`);
    try {
      if (furtherParts.length === 0 && !first.negated) return this.#single(first, key);
      // Schemas that must hold at the same time may be recursive: then they lead back to this rule.
      const name = this.#rules.unused('all');
      this.#expressions.set(key, { kind: 'rule', name });
      return this.#rules.define(name, this.#conjunction(distinctParts, strict));
    } catch (error) {
      this.#expressions.delete(key);
      throw error;
    } finally {
      this.#depth -= 1;
    }
  }

  #single({ schema, at }: Part, key: string): Expression {
    if (!isSchema(schema)) throw mistake(at, 'a schema must be an object or a boolean');
    if (!isObject(schema)) return schema ? this.json.value : NEVER;
    const keywords = assertions(schema);
    const [keyword, ...otherKeywords] = keywords;
    if (keywords.every((each) => LEAF_KEYWORDS.has(each))) return this.#leaf(schema, at, keywords);
    let expression: Expression;
    if (otherKeywords.length === 0 && keyword === '$ref') expression = this.#reference(this.cases.resolve(schema, at));
    else if (otherKeywords.length === 0 && keyword === 'anyOf') {
      expression = choice(listOf(schema, keyword, at).map((option) => this.translate([option])));
    } else expression = this.#conjunction([{ schema, at }], false);
    this.#expressions.set(key, expression);
    return expression;
  }

  /** Translates a schema that contains no other. Schemas with equal keywords share one expression if it adds no rules and leaves no keyword open. */
  #leaf(schema: SchemaObject, at: Pointer, keywords: readonly string[]): Expression {
    const text = JSON.stringify(keywords.map((keyword) => [keyword, schema[keyword]]));
    const leaf = leaves.get(text);
    if (leaf) {
      this.#rules.reserve(leaf.rules);
      return leaf.expression;
    }
    const [rulesBefore, reservedBefore, openBefore] = [this.#rules.size, this.#rules.reserved, this.open.length];
    const expression = this.#conjunction([{ schema, at }], false);
    if (this.#rules.size === rulesBefore && this.open.length === openBefore) {
      leaves.set(text, { expression, rules: this.#rules.reserved - reservedBefore });
    }
    return expression;
  }

  #reference(target: Part): Expression {
    const name = `ref.${target.at}`;
    const known = this.#expressions.get(name);
    if (known) return known;
    this.#expressions.set(name, { kind: 'rule', name });
    return this.#rules.define(name, this.translate([target]));
  }

  #conjunction(parts: readonly Part[], strict: boolean): Expression {
    const at = parts[0]?.at ?? '#';
    let cases: readonly Case[];
    try {
      cases = this.cases.of(parts);
    } catch (error) {
      if (!(error instanceof Inexpressible) || strict) throw error;
      const positiveParts = parts.filter(({ negated }) => !negated);
      const hasNegated = positiveParts.length < parts.length;
      this.leaveOpen(hasNegated ? 'not' : 'allOf', at);
      return this.translate(hasNegated ? positiveParts : []);
    }
    return choice(cases.map((rules) => this.#case(rules, at)));
  }

  #case(rules: Case, at: Pointer): Expression {
    const { listed, unlisted } = rules;
    if (listed) return choice(listed.filter((value) => this.#mayFit(value, rules, at)).map(literal));
    const types = typesOf(rules) ?? (unlisted ? TYPES : undefined);
    return types ? choice([...types].map((type) => this.#ofType(type, rules, at))) : this.json.value;
  }

  /** True if a listed value fits the case. Also true if the translator cannot decide this; `check` then tests the whole text. */
  #mayFit(value: unknown, rules: Case, at: Pointer): boolean {
    try {
      return fitsCase(value, rules, this.cases);
    } catch (error) {
      if (!(error instanceof Inexpressible)) throw error;
      this.leaveOpen('enum', at);
      return true;
    }
  }

  #ofType(type: Type, rules: Case, at: Pointer): Expression {
    try {
      switch (type) {
        case 'object':
          return objectExpression(this, rules, at);
        case 'array':
          return arrayExpression(this, rules, at);
        case 'string':
          return stringExpression(this.json, rules);
        case 'number':
          return numberExpression(this.json, rules);
        case 'boolean':
          return BOOLEAN;
        case 'null':
          return NULL;
      }
    } catch (error) {
      if (!(error instanceof Inexpressible)) throw error;
      this.leaveOpen(HARD_KEYWORDS[type] ?? type, at);
      return this.#supersetOf(type, rules);
    }
  }

  /** A simple superset of a case's values of one type, for a case that the grammar cannot express. */
  #supersetOf(type: Type, { integers, low, high }: Case): Expression {
    switch (type) {
      case 'number':
        return numberExpression(this.json, { integers, low, high });
      case 'object':
        return this.json.object;
      case 'array':
        return this.json.array;
      default:
        return this.json.string;
    }
  }
}

/** The keyword that is reported open when a grammar cannot express a case of a type; for other types, the type itself is reported. */
const HARD_KEYWORDS: Partial<Record<Type, string>> = { number: 'multipleOf', string: 'pattern' };

/** Keywords whose values contain no schema. */
const LEAF_KEYWORDS: ReadonlySet<string> = new Set([
  'type',
  'enum',
  'const',
  'minLength',
  'maxLength',
  'pattern',
  'format',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
]);
/** Maximum characters of remembered leaves: about 20 MB with their expressions. */
const MAX_LEAVES = 500_000;
const leaves = new BoundedCache<{ readonly expression: Expression; readonly rules: number }>(MAX_LEAVES);

/** The keywords of a schema that limit values. Unknown keywords are annotations, as JSON Schema says. */
function assertions(schema: SchemaObject): string[] {
  return Object.keys(schema).filter((key) => ASSERTIONS.has(key));
}

const ASSERTIONS: ReadonlySet<string> = new Set([
  'type',
  'enum',
  'const',
  'anyOf',
  'oneOf',
  'allOf',
  'not',
  'if',
  '$ref',
  '$dynamicRef',
  '$recursiveRef',
  'properties',
  'required',
  'additionalProperties',
  'patternProperties',
  'minProperties',
  'maxProperties',
  'propertyNames',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  'unevaluatedProperties',
  'prefixItems',
  'items',
  'minItems',
  'maxItems',
  'uniqueItems',
  'contains',
  'unevaluatedItems',
  'minLength',
  'maxLength',
  'pattern',
  'format',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
]);

/** A keyword that the grammar does not enforce. */
interface OpenKeyword {
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
function checkOf(root: unknown, open: readonly OpenKeyword[]): Check {
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
