import { charactersOf, complement, intersection } from './characters.ts';
import { quote } from './error.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  NEVER,
  oneOf,
  optional,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { escaped, literal, PLAIN } from './json.ts';
import type { Translation } from './json-schema.ts';
import { inside, isObject, mistake, own, type Pointer, type SchemaObject } from './json-schema-object.ts';
import { regexSearch } from './regex.ts';

const MANY = Number.POSITIVE_INFINITY;

interface Property {
  /** '"name": value' with the space after it. */
  readonly pair: Expression;
  readonly required: boolean;
}

/** An object: declared properties in their order, then others where they are allowed, within 'minProperties' and 'maxProperties'. */
export function objectExpression(translation: Translation, schema: SchemaObject, at: Pointer): Expression {
  const { json } = translation;
  const least = translation.count(schema, 'minProperties', at) ?? 0;
  const most = translation.count(schema, 'maxProperties', at) ?? MANY;
  const properties = declared(translation, schema, at);
  const other = others(translation, schema, at);
  if (least > properties.length + 1) {
    throw mistake(inside(at, 'minProperties'), 'more than the declared properties and one; declare them');
  }
  const rules = new Map<string, Expression>();
  return json.within('{', '}', from(0, 0));

  /** Properties from 'index' on, after 'written' properties. Counts only as far as the limits need. */
  function from(index: number, written: number): Expression {
    const count = Math.min(written, most === MANY ? Math.max(least, 1) : written);
    const key = `${index} ${count}`;
    const known = rules.get(key);
    if (known) return known;
    const made = json.rules.add('members', members(index, count));
    rules.set(key, made);
    return made;
  }

  function members(index: number, written: number): Expression {
    const property = properties[index];
    if (!property) return additional(written);
    const pair = written === 0 ? property.pair : json.next(property.pair);
    const here = written < most ? sequence([pair, from(index + 1, written + 1)]) : NEVER;
    return property.required ? here : choice([here, from(index + 1, written)]);
  }

  function additional(written: number): Expression {
    const low = Math.max(0, least - written);
    const high = most - written;
    // Names of undeclared properties may repeat, so only the first surely counts.
    if (high <= 0 || isNever(other) || low > 1) return low > 0 ? NEVER : EMPTY;
    if (written > 0) return repeat(json.next(other), low, high);
    const all = sequence([other, repeat(json.next(other), 0, high - 1)]);
    return low === 0 ? optional(all) : all;
  }
}

function declared(translation: Translation, schema: SchemaObject, at: Pointer): Property[] {
  const { json } = translation;
  const written = own(schema, 'properties') ?? {};
  const required = own(schema, 'required') ?? [];
  if (!isObject(written)) throw mistake(inside(at, 'properties'), 'must be an object of schemas');
  if (!Array.isArray(required) || required.some((name) => typeof name !== 'string')) {
    throw mistake(inside(at, 'required'), 'must be an array of names');
  }
  const rest = own(schema, 'additionalProperties') ?? true;
  const names = new Set<string>([...Object.keys(written), ...required]);
  return [...names].map((name) => {
    const place = inside(at, 'properties', name);
    const value = own(written, name);
    const expression = value === undefined ? translation.translate(rest, place) : translation.translate(value, place);
    const pair = json.rules.add('pair', json.pair(literal(name), json.rules.add('property', expression)));
    return { pair: isNever(expression) ? NEVER : pair, required: required.includes(name) };
  });
}

/** An undeclared property; `NEVER` where none is allowed. */
function others(translation: Translation, schema: SchemaObject, at: Pointer): Expression {
  const { json } = translation;
  const properties = own(schema, 'properties');
  const patterns = own(schema, 'patternProperties');
  const rest = own(schema, 'additionalProperties');
  if (patterns !== undefined) return patterned(translation, schema, patterns, at);
  if (rest === false || (rest === undefined && properties !== undefined)) return NEVER;
  const value = rest === undefined ? json.value : translation.translate(rest, inside(at, 'additionalProperties'));
  const required = own(schema, 'required');
  const names = [
    ...(isObject(properties) ? Object.keys(properties) : []),
    ...(Array.isArray(required) ? required : []),
  ];
  const key = names.length === 0 ? json.string : json.rules.add('key', sequence([text('"'), except(names), text('"')]));
  return json.rules.add('other', json.pair(key, value));
}

function patterned(translation: Translation, schema: SchemaObject, patterns: unknown, at: Pointer): Expression {
  const { json } = translation;
  const place = inside(at, 'patternProperties');
  if (!isObject(patterns)) throw mistake(place, 'must be an object of schemas');
  const [first, ...more] = Object.entries(patterns);
  const rest = own(schema, 'additionalProperties');
  if (!first || more.length > 0 || own(schema, 'properties') !== undefined || (rest !== undefined && rest !== false)) {
    throw mistake(
      place,
      'a name might fall under two schemas; use one pattern, without properties and additionalProperties',
    );
  }
  const [pattern, value] = first;
  if (Array.isArray(own(schema, 'required'))) {
    throw mistake(place, `${quote(pattern)} cannot be kept beside required; use properties`);
  }
  const key = sequence([text('"'), escaped(regexSearch(pattern)), text('"')]);
  return json.rules.add('other', json.pair(key, translation.translate(value, inside(place, pattern))));
}

/** Texts of plain characters that are none of 'names'. */
function except(names: readonly string[]): Expression {
  const anything = repeat(oneOf(PLAIN), 0, MANY);
  const byFirst = Map.groupBy(
    names.filter((name) => name !== ''),
    (name) => [...name][0] ?? '',
  );
  const otherwise = intersection(PLAIN, complement(charactersOf([...byFirst.keys()].join(''))));
  return choice([
    ...(names.includes('') ? [] : [EMPTY]),
    sequence([oneOf(otherwise), anything]),
    ...[...byFirst].map(([first, group]) =>
      sequence([
        oneOf(intersection(PLAIN, charactersOf(first))),
        except(group.map((name) => name.slice(first.length))),
      ]),
    ),
  ]);
}
