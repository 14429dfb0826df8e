import { EMPTY, type Expression, isNever, NEVER, optional, repeat, sequence } from './expression.ts';
import type { Translation } from './json-schema.ts';
import { inside, mistake, own, type Pointer, type SchemaObject } from './json-schema-object.ts';

const MANY = Number.POSITIVE_INFINITY;

/** An array: 'prefixItems' in their places, then any number of 'items', within 'minItems' and 'maxItems'. */
export function arrayExpression(translation: Translation, schema: SchemaObject, at: Pointer): Expression {
  const { json } = translation;
  const written = own(schema, 'prefixItems') ?? [];
  if (!Array.isArray(written)) throw mistake(inside(at, 'prefixItems'), 'must be an array of schemas');
  const most = translation.count(schema, 'maxItems', at) ?? MANY;
  const prefix = written
    .slice(0, Math.min(most, written.length))
    .map((item, index) => translation.translate(item, inside(at, 'prefixItems', index)));
  const least = translation.count(schema, 'minItems', at) ?? prefix.length;
  if (least > most) throw mistake(at, `minItems ${least} is more than maxItems ${most}`);
  if (own(schema, 'items') === undefined && least === 0 && most === MANY && prefix.length === 0) return json.array;
  const rest = rests(translation, schema, prefix.length, least, at);
  const items = prefix.map((item) => sequence([item, json.space]));
  return json.within('[', ']', from(0));

  /** The items from place 'index' on; the first one has no comma before it. */
  function from(index: number): Expression {
    const item = items[index];
    if (item === undefined) return others(index);
    const here = sequence([index === 0 ? item : json.next(item), from(index + 1)]);
    return index >= least ? optional(here) : here;
  }

  function others(index: number): Expression {
    const low = Math.max(0, least - index);
    const high = most - index;
    if (high <= 0 || isNever(rest)) return low > 0 ? NEVER : EMPTY;
    const item = sequence([rest, json.space]);
    if (index > 0) return repeat(json.next(item), low, high);
    const all = sequence([item, repeat(json.next(item), Math.max(0, low - 1), high - 1)]);
    return low === 0 ? optional(all) : all;
  }
}

/** Items after the 'prefixItems': those of 'items'; without it any, but after a prefix only if 'minItems' asks for more. */
function rests(translation: Translation, schema: SchemaObject, prefix: number, least: number, at: Pointer): Expression {
  const items = own(schema, 'items');
  if (items !== undefined) return translation.json.rules.add('item', translation.translate(items, inside(at, 'items')));
  return prefix === 0 || least > prefix ? translation.json.value : NEVER;
}
