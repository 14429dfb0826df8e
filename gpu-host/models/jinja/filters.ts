import { TemplateError } from './errors.ts';
import { fixed, formatPercent } from './format.ts';
import { asInteger, asText, bind, centered, isGiven, type Rendering, replaceText } from './methods.ts';
import { areEqual, binary, compareValues, contains, numberOf, sliceOf } from './operators.ts';
import { capitalize, splitLines, splitSpaces, trimEnd, trimStart } from './text.ts';
import {
  type CallArguments,
  Callable,
  Dict,
  DictView,
  Float,
  Generator,
  hashOf,
  isIterable,
  isTrue,
  iterate,
  type JsonOptions,
  jsonText,
  PythonObject,
  sizeOf,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

type Filter = (value: Value, args: CallArguments, rendering: Rendering) => Value;
type Test = (value: Value, args: CallArguments, rendering: Rendering) => boolean;

/** @throws TemplateError for an unknown filter, and where the filter of Jinja2 fails */
export function applyFilter(name: string, value: Value, args: CallArguments, rendering: Rendering): Value {
  const filter = Object.hasOwn(FILTERS, name) ? FILTERS[name] : undefined;
  if (filter === undefined) throw new TemplateError(UNSUPPORTED.get(name) ?? `there is no filter "${name}"`);
  if (typeof value === 'string') rendering.text(value.length);
  return filter(value, args, rendering);
}

/** @throws TemplateError for an unknown test, and where the test of Jinja2 fails */
export function applyTest(name: string, value: Value, args: CallArguments, rendering: Rendering): boolean {
  const test = Object.hasOwn(TESTS, name) ? TESTS[name] : undefined;
  if (test === undefined) throw new TemplateError(`there is no test "${name}"`);
  if (typeof value === 'string') rendering.text(value.length);
  return test(value, args, rendering);
}

const UNSUPPORTED = new Map(
  ['filesizeformat', 'pprint', 'random', 'urlize', 'wordwrap', 'xmlattr'].map((name) => [
    name,
    `the filter "${name}" is not supported in chat templates`,
  ]),
);

/** A filter with named parameters. */
function filter(
  parameters: readonly string[],
  run: (value: Value, args: readonly (Value | undefined)[], rendering: Rendering) => Value,
  required = 0,
): Filter {
  return (value, args, rendering) => run(value, bind('filter', args, parameters, required), rendering);
}

const onText = (run: (text: string) => string): Filter =>
  filter([], (value, _, rendering) => run(textOf(value, rendering)));
const flag = (value: Value | undefined): boolean => value !== undefined && isTrue(value);

/** Reads all items; each counts as a step. */
export function listOf(value: Value, rendering: Rendering): Value[] {
  const items: Value[] = [];
  for (const item of iterate(value)) {
    rendering.steps(1);
    items.push(item);
  }
  return items;
}

/** Reads `a.b.0` of an item: attributes as keys first, numbers as indices. */
function pathOf(path: Value, rendering: Rendering): (item: Value) => Value {
  if (path === null) return (item) => item;
  const parts: Value[] =
    typeof path === 'string' ? path.split('.').map((part) => (/^\d+$/.test(part) ? Number(part) : part)) : [path];
  return (item) => {
    rendering.steps(parts.length);
    return parts.reduce((value: Value, part) => rendering.item(value, part), item);
  };
}

const ignoringCase = (value: Value): Value => (typeof value === 'string' ? value.toLowerCase() : value);

function keyOf(attribute: Value | undefined, isCaseSensitive: boolean, rendering: Rendering): (item: Value) => Value {
  const read = pathOf(attribute ?? null, rendering);
  return isCaseSensitive ? read : (item) => ignoringCase(read(item));
}

function sorted<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  isReverse: boolean,
  rendering: Rendering,
): T[] {
  rendering.steps(items.length * Math.ceil(Math.log2(items.length + 1)));
  return items.slice().sort(isReverse ? (a, b) => compare(b, a) : compare);
}

function sort(value: Value, args: readonly (Value | undefined)[], rendering: Rendering): Value {
  const [reverse, caseSensitive, attribute] = args;
  const attributes: Value[] = typeof attribute === 'string' ? attribute.split(',') : [attribute ?? null];
  const keys = attributes.map((each) => keyOf(each, flag(caseSensitive), rendering));
  const rows = listOf(value, rendering).map((item) => ({ item, key: new Tuple(keys.map((key) => key(item))) }));
  return sorted(rows, (a, b) => compareValues(a.key, b.key, '<', rendering), flag(reverse), rendering).map(
    ({ item }) => item,
  );
}

function extreme(isMaximum: boolean): Filter {
  return filter(['case_sensitive', 'attribute'], (value, [caseSensitive, attribute], rendering) => {
    const key = keyOf(attribute, flag(caseSensitive), rendering);
    const [first, ...rest] = listOf(value, rendering);
    if (first === undefined) return new Undefined('No aggregated item, sequence was empty.');
    return rest.reduce((best, item) => {
      const order = compareValues(key(item), key(best), '<', rendering);
      return (isMaximum ? order > 0 : order < 0) ? item : best;
    }, first);
  });
}

/** `select`, `reject`, `selectattr` and `rejectattr`: the arguments are an attribute, if any, a test and the test's arguments. */
function selecting(hasAttribute: boolean, isKept: boolean): Filter {
  return (value, { positional, named }, rendering) => {
    const [attribute] = positional;
    if (hasAttribute && attribute === undefined) throw new TemplateError('Missing parameter for attribute name');
    const read = hasAttribute ? pathOf(attribute ?? null, rendering) : (item: Value) => item;
    const [test, ...rest] = hasAttribute ? positional.slice(1) : positional;
    const holds = (item: Value): boolean =>
      test === undefined
        ? isTrue(item)
        : applyTest(asText(test, 'select'), item, { positional: rest, named }, rendering);
    return new Generator(
      (function* () {
        if (!isTrue(value)) return;
        for (const item of iterate(value)) {
          rendering.steps(1);
          if (holds(read(item)) === isKept) yield item;
        }
      })(),
    );
  };
}

const map: Filter = (value, { positional, named }, rendering) => {
  const [name, ...rest] = positional;
  const transform = (): ((item: Value) => Value) => {
    if (name !== undefined) {
      return (item) => applyFilter(asText(name, 'map'), item, { positional: rest, named }, rendering);
    }
    const attribute = named.get('attribute');
    if (attribute === undefined) throw new TemplateError('map requires a filter argument');
    const read = pathOf(attribute, rendering);
    const fallback = named.get('default');
    return (item) => {
      const result = read(item);
      return result instanceof Undefined && fallback !== undefined ? fallback : result;
    };
  };
  return new Generator(
    (function* () {
      if (!isTrue(value)) return;
      const apply = transform();
      for (const item of iterate(value)) {
        rendering.steps(1);
        yield apply(item);
      }
    })(),
  );
};

function toJson(value: Value, args: readonly (Value | undefined)[], rendering: Rendering): Value {
  const [ensureAscii, indent, separators, sortKeys] = args;
  const pair = isGiven(separators) ? listOf(separators, rendering).map((each) => asText(each, 'tojson')) : null;
  if (pair !== null && pair.length !== 2) throw new TemplateError('tojson() needs two separators');
  const options: JsonOptions = {
    ensureAscii: flag(ensureAscii),
    indent: !isGiven(indent)
      ? null
      : typeof indent === 'string'
        ? indent
        : ' '.repeat(Math.min(64, Math.max(0, asInteger(indent, 'tojson')))),
    separators: pair === null ? null : [pair[0] ?? '', pair[1] ?? ''],
    sortKeys: flag(sortKeys),
  };
  return jsonText(value, options, rendering);
}

function indent(value: Value, [width, first, blank]: readonly (Value | undefined)[], rendering: Rendering): Value {
  const columns = typeof width === 'string' ? width.length : Math.max(0, asInteger(width ?? 4, 'indent'));
  const lines = splitLines(`${asText(value, 'indent')}\n`);
  rendering.text(lines.length * columns);
  const margin = typeof width === 'string' ? width : ' '.repeat(columns);
  const indented = lines.map((line, i) => (i > 0 && (line !== '' || flag(blank)) ? margin + line : line));
  return (flag(first) ? margin : '') + indented.join('\n');
}

/** Python's `int()` of a text; undefined if it is no number. */
function parseInteger(text: string, base: number): number | undefined {
  let digits = trimEnd(trimStart(text))
    .replaceAll(/(?<=[\da-z])_(?=[\da-z])/gi, '')
    .toLowerCase();
  const sign = digits.startsWith('-') ? -1 : 1;
  digits = digits.replace(/^[-+]/, '');
  const prefix = { 2: /^0b/, 8: /^0o/, 16: /^0x/ }[base];
  if (prefix !== undefined) digits = digits.replace(prefix, '');
  if (!/^[\da-z]+$/.test(digits)) return undefined;
  const isValid = Array.from(digits).every((digit) => Number.parseInt(digit, 36) < base);
  return isValid ? sign * Number.parseInt(digits, base) + 0 : undefined;
}

/** Python's `float()` of a text; undefined if it is no number. */
function parseFloatText(text: string): number | undefined {
  const trimmed = trimEnd(trimStart(text))
    .replaceAll(/(?<=\d)_(?=\d)/g, '')
    .toLowerCase();
  const word = /^([-+]?)(inf|infinity|nan)$/.exec(trimmed);
  if (word !== null)
    return word[2] === 'nan' ? Number.NaN : word[1] === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  return /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?$/.test(trimmed) ? Number(trimmed) : undefined;
}

function toInteger(value: Value, [fallback = 0, base]: readonly (Value | undefined)[]): Value {
  if (value instanceof Undefined) throw new TemplateError(value.message);
  if (typeof value === 'string') {
    const integer = parseInteger(value, base === undefined ? 10 : asInteger(base, 'int'));
    if (integer !== undefined) return integer;
  }
  const number = typeof value === 'string' ? parseFloatText(value) : numberOf(value);
  if (number === undefined || Number.isNaN(number)) return fallback;
  if (!Number.isFinite(number)) {
    if (typeof value === 'string') return fallback;
    throw new TemplateError('cannot convert float infinity to integer');
  }
  return Math.trunc(number) + 0;
}

function toFloat(value: Value, [fallback = new Float(0)]: readonly (Value | undefined)[]): Value {
  if (value instanceof Undefined) throw new TemplateError(value.message);
  const number = typeof value === 'string' ? parseFloatText(value) : numberOf(value);
  return number === undefined ? fallback : new Float(number);
}

function round(value: Value, [precision = 0, way = 'common']: readonly (Value | undefined)[]): Value {
  const number = numberOf(value);
  if (number === undefined) throw new TemplateError(`type ${typeName(value)} doesn't define __round__ method`);
  const places = asInteger(precision, 'round');
  const scale = 10 ** places;
  if (way === 'ceil') return new Float(Math.ceil(number * scale) / scale);
  if (way === 'floor') return new Float(Math.floor(number * scale) / scale);
  if (way !== 'common') throw new TemplateError('method must be common, ceil or floor');
  const isFloat = value instanceof Float;
  if (!Number.isFinite(number)) return value;
  if (places >= 0)
    return isFloat
      ? new Float(Number(number < 0 ? `-${fixed(-number, Math.min(99, places))}` : fixed(number, Math.min(99, places))))
      : number;
  const rounded = Number(fixed(Math.abs(number) * scale, 0)) / scale;
  return isFloat ? new Float(Math.sign(number) * rounded) : Math.round(Math.sign(number) * rounded);
}

function groupBy(
  value: Value,
  [attribute = null, fallback, caseSensitive]: readonly (Value | undefined)[],
  rendering: Rendering,
): Value {
  const read = pathOf(attribute, rendering);
  const withDefault = (item: Value): Value => {
    const result = read(item);
    return result instanceof Undefined && fallback !== undefined ? fallback : result;
  };
  const keyed = (item: Value): Value => (flag(caseSensitive) ? withDefault(item) : ignoringCase(withDefault(item)));
  const rows = listOf(value, rendering).map((item) => ({ item, key: keyed(item) }));
  const groups: { readonly key: Value; readonly items: Value[] }[] = [];
  for (const { item, key } of sorted(rows, (a, b) => compareValues(a.key, b.key, '<', rendering), false, rendering)) {
    const last = groups.at(-1);
    if (last !== undefined && areEqual(last.key, key, rendering)) last.items.push(item);
    else groups.push({ key, items: [item] });
  }
  return groups.map(({ items }) => new Tuple([withDefault(items[0] ?? null), items], ['grouper', 'list']));
}

function truncate(value: Value, args: readonly (Value | undefined)[]): Value {
  const [length = 255, killWords, end = '...', leeway = 5] = args;
  const text = Array.from(asText(value, 'truncate'));
  const ending = asText(end, 'truncate');
  const limit = asInteger(length, 'truncate');
  if (limit < ending.length) throw new TemplateError(`expected length >= ${ending.length}, got ${limit}`);
  if (text.length <= limit + asInteger(leeway, 'truncate')) return text.join('');
  const cut = text.slice(0, limit - Array.from(ending).length).join('');
  if (flag(killWords)) return cut + ending;
  const space = cut.lastIndexOf(' ');
  return (space === -1 ? cut : cut.slice(0, space)) + ending;
}

const HTML: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', "'": '&#39;', '"': '&#34;' };
export const escapeHtml = (text: string): string => text.replace(/[&<>'"]/g, (char) => HTML[char] ?? char);

/** Removes comments and tags, and joins what is left by single spaces. */
function stripTags(text: string): string {
  const without = (from: string, open: string, close: string): string => {
    let kept = '';
    let at = 0;
    for (;;) {
      const begin = from.indexOf(open, at);
      const end = begin === -1 ? -1 : from.indexOf(close, begin);
      if (end === -1) return kept + from.slice(at);
      kept += from.slice(at, begin);
      at = end + close.length;
    }
  };
  const stripped = splitSpaces(without(without(text, '<!--', '-->'), '<', '>'), -1).join(' ');
  return stripped.replace(/&(amp|lt|gt|quot|#39|#34);/g, (entity, name: string) => {
    const char = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'", '#34': '"' }[name];
    return char ?? entity;
  });
}

function urlEncode(value: Value, rendering: Rendering): string {
  const encode = (text: string, keepsSlash: boolean): string => {
    rendering.text(text.length);
    const encoded = encodeURIComponent(text.toWellFormed()).replace(
      /[!'()*]/g,
      (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
    );
    return keepsSlash ? encoded.replaceAll('%2F', '/') : encoded.replaceAll('%20', '+');
  };
  if (typeof value === 'string' || !isIterable(value)) return encode(textOf(value, rendering), true);
  const pairs =
    value instanceof Dict ? [...value.entries()] : listOf(value, rendering).map((pair) => listOf(pair, rendering));
  return pairs
    .map(
      ([key = null, each = null]) =>
        `${encode(textOf(key, rendering), false)}=${encode(textOf(each, rendering), false)}`,
    )
    .join('&');
}

function* batches(value: Value, size: number, fill: Value, rendering: Rendering): Iterable<Value> {
  let batch: Value[] = [];
  for (const item of iterate(value)) {
    rendering.steps(1);
    if (batch.length === size) {
      yield batch;
      batch = [];
    }
    batch.push(item);
  }
  if (batch.length === 0) return;
  while (fill !== null && batch.length < size) {
    rendering.steps(1);
    batch.push(fill);
  }
  yield batch;
}

function* slices(items: readonly Value[], count: number, fill: Value): Iterable<Value> {
  const size = Math.floor(items.length / count);
  const larger = items.length % count;
  let at = 0;
  for (let i = 0; i < count; i++) {
    const end = at + size + (i < larger ? 1 : 0);
    yield fill !== null && i >= larger ? [...items.slice(at, end), fill] : items.slice(at, end);
    at = end;
  }
}

function* unique(value: Value, key: (item: Value) => Value, rendering: Rendering): Iterable<Value> {
  const seen = new Set<unknown>();
  for (const item of iterate(value)) {
    rendering.steps(1);
    const hash = hashOf(key(item), rendering);
    if (seen.has(hash)) continue;
    seen.add(hash);
    yield item;
  }
}

function lengthOfValue(value: Value): number {
  // `applyFilter` has counted the characters of a text.
  const size = sizeOf(value);
  if (size === undefined) throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
  return size;
}

function reverse(value: Value, rendering: Rendering): Value {
  if (typeof value === 'string') return sliceOf(value, [null, null, -1], rendering);
  const items = listOf(value, rendering).reverse();
  return value instanceof Generator ? items : new Generator(items, 'list_reverseiterator');
}

function last(value: Value, rendering: Rendering): Value {
  if (value instanceof Generator) throw new TemplateError(`'${value.typeName}' object is not reversible`);
  const item = listOf(value, rendering).at(-1);
  return item === undefined ? new Undefined('No last item, sequence was empty.') : item;
}

function first(value: Value): Value {
  for (const item of iterate(value)) return item;
  return new Undefined('No first item, sequence was empty.');
}

function join(value: Value, [separator = '', attribute]: readonly (Value | undefined)[], rendering: Rendering): Value {
  const read = pathOf(attribute ?? null, rendering);
  const texts = listOf(value, rendering).map((item) => textOf(read(item), rendering));
  const between = textOf(separator, rendering);
  rendering.text(texts.reduce((sum, text) => sum + text.length + between.length, 0));
  return texts.join(between);
}

function sum(value: Value, [attribute, start = 0]: readonly (Value | undefined)[], rendering: Rendering): Value {
  const read = pathOf(attribute ?? null, rendering);
  return listOf(value, rendering).reduce((total, item) => binary('+', total, read(item), rendering), start);
}

function items(value: Value, rendering: Rendering): Value {
  if (value instanceof Undefined) return new Generator([]);
  if (!(value instanceof Dict)) throw new TemplateError('Can only get item pairs from a mapping.');
  rendering.steps(value.size);
  return new Generator(Array.from(value.entries(), ([key, each]) => new Tuple([key, each])));
}

function dictSort(
  value: Value,
  [caseSensitive, by = 'key', reverse]: readonly (Value | undefined)[],
  rendering: Rendering,
): Value {
  if (!(value instanceof Dict)) throw new TemplateError('dictsort() needs a dict');
  if (by !== 'key' && by !== 'value') throw new TemplateError('You can only sort by either "key" or "value"');
  const key = ([name, each]: readonly [Value, Value]): Value => {
    const read = by === 'key' ? name : each;
    return flag(caseSensitive) ? read : ignoringCase(read);
  };
  const pairs = sorted(
    [...value.entries()],
    (a, b) => compareValues(key(a), key(b), '<', rendering),
    flag(reverse),
    rendering,
  );
  return pairs.map((pair) => new Tuple(pair));
}

const length: Filter = filter([], lengthOfValue);
const escaping: Filter = onText(escapeHtml);
const fallback: Filter = filter(['default_value', 'boolean'], (value, [instead = '', boolean]) =>
  value instanceof Undefined || (flag(boolean) && !isTrue(value)) ? instead : value,
);

const FILTERS: Readonly<Record<string, Filter>> = {
  abs: filter([], (value) => {
    const number = numberOf(value);
    if (number === undefined) throw new TemplateError(`bad operand type for abs(): '${typeName(value)}'`);
    return value instanceof Float ? new Float(Math.abs(number)) : Math.abs(number);
  }),
  attr: filter(
    ['name'],
    (value, [name], rendering) => {
      // An attribute only, never a key.
      if (value instanceof Dict && value.has(name ?? null, rendering))
        return new Undefined(`'dict object' has no attribute '${textOf(name ?? null, rendering)}'`);
      return rendering.attribute(value, asText(name, 'attr'));
    },
    1,
  ),
  batch: filter(
    ['linecount', 'fill_with'],
    (value, [size, fill = null], rendering) => new Generator(batches(value, asInteger(size, 'batch'), fill, rendering)),
    1,
  ),
  capitalize: onText(capitalize),
  center: filter(['width'], (value, [width = 80], rendering) => centered(textOf(value, rendering), [width], rendering)),
  count: length,
  d: fallback,
  default: fallback,
  dictsort: filter(['case_sensitive', 'by', 'reverse'], dictSort),
  e: escaping,
  escape: escaping,
  first: filter([], first),
  float: filter(['default'], toFloat),
  forceescape: escaping,
  format: (value, { positional, named }, rendering) => {
    const text = textOf(value, rendering);
    rendering.text(text.length);
    return formatPercent(text, named.size > 0 ? new Dict(named, rendering) : new Tuple(positional), rendering);
  },
  groupby: filter(['attribute', 'default', 'case_sensitive'], groupBy, 1),
  indent: filter(['width', 'first', 'blank'], indent),
  int: filter(['default', 'base'], toInteger),
  items: filter([], (value, _, rendering) => items(value, rendering)),
  join: filter(['d', 'attribute'], join),
  last: filter([], (value, _, rendering) => last(value, rendering)),
  length,
  list: filter([], (value, _, rendering) => listOf(value, rendering)),
  lower: onText((text) => text.toLowerCase()),
  map,
  max: extreme(true),
  min: extreme(false),
  reject: selecting(false, false),
  rejectattr: selecting(true, false),
  replace: filter(
    ['old', 'new', 'count'],
    (value, [from = null, to = null, count], rendering) =>
      replaceText(
        textOf(value, rendering),
        textOf(from, rendering),
        textOf(to, rendering),
        isGiven(count) ? asInteger(count, 'replace') : -1,
        rendering,
      ),
    2,
  ),
  reverse: filter([], (value, _, rendering) => reverse(value, rendering)),
  round: filter(['precision', 'method'], round),
  safe: onText((text) => text),
  select: selecting(false, true),
  selectattr: selecting(true, true),
  slice: filter(
    ['slices', 'fill_with'],
    (value, [count, fill = null], rendering) => {
      const parts = asInteger(count, 'slice');
      rendering.steps(parts);
      return new Generator(slices(listOf(value, rendering), parts, fill));
    },
    1,
  ),
  sort: filter(['reverse', 'case_sensitive', 'attribute'], sort),
  string: onText((text) => text),
  striptags: onText(stripTags),
  sum: filter(['attribute', 'start'], sum),
  title: onText((text) => text.replace(/[^-\s({[<]+/g, capitalize)),
  tojson: filter(['ensure_ascii', 'indent', 'separators', 'sort_keys'], toJson),
  trim: filter(['chars'], (value, [drop], rendering) => {
    const chars = isGiven(drop) ? asText(drop, 'trim') : undefined;
    rendering.text(chars?.length ?? 0);
    return trimEnd(trimStart(textOf(value, rendering), chars), chars);
  }),
  truncate: filter(['length', 'killwords', 'end', 'leeway'], truncate),
  unique: filter(
    ['case_sensitive', 'attribute'],
    (value, [caseSensitive, attribute], rendering) =>
      new Generator(unique(value, keyOf(attribute, flag(caseSensitive), rendering), rendering)),
  ),
  upper: onText((text) => text.toUpperCase()),
  urlencode: filter([], (value, _, rendering) => urlEncode(value, rendering)),
  wordcount: filter([], (value, _, rendering) => textOf(value, rendering).match(/[\p{L}\p{M}\p{N}_]+/gu)?.length ?? 0),
};

const compared =
  (operator: string, holds: (order: number) => boolean): Test =>
  (value, args, rendering) => {
    const [other = null] = bind('test', args, ['other'], 1);
    return holds(compareValues(value, other, operator, rendering));
  };

const simple =
  (holds: (value: Value, rendering: Rendering) => boolean): Test =>
  (value, args, rendering) => {
    bind('test', args, []);
    return holds(value, rendering);
  };

const remainder = (value: Value, divisor: number, rendering: Rendering): number =>
  numberOf(binary('%', value, divisor, rendering)) ?? Number.NaN;
const equal: Test = (value, args, rendering) => areEqual(value, bind('test', args, ['other'], 1)[0] ?? null, rendering);
const greater = compared('>', (order) => order > 0);
const less = compared('<', (order) => order < 0);
const isNumber = (value: Value): boolean => numberOf(value) !== undefined;

const TESTS: Readonly<Record<string, Test>> = {
  '!=': (...all) => !equal(...all),
  '<': less,
  '<=': compared('<=', (order) => order <= 0),
  '==': equal,
  '>': greater,
  '>=': compared('>=', (order) => order >= 0),
  boolean: simple((value) => typeof value === 'boolean'),
  callable: simple(
    (value) =>
      value instanceof Callable || value instanceof Undefined || (value instanceof PythonObject && value.isCallable),
  ),
  defined: simple((value) => !(value instanceof Undefined)),
  divisibleby: (value, args, rendering) =>
    remainder(value, asInteger(bind('divisibleby', args, ['num'], 1)[0], 'divisibleby'), rendering) === 0,
  eq: equal,
  equalto: equal,
  escaped: simple(() => false),
  even: (value, _, rendering) => remainder(value, 2, rendering) === 0,
  false: simple((value) => value === false),
  filter: simple((value) => typeof value === 'string' && Object.hasOwn(FILTERS, value)),
  float: simple((value) => value instanceof Float),
  ge: compared('>=', (order) => order >= 0),
  greaterthan: greater,
  gt: greater,
  in: (value, args, rendering) => contains(bind('in', args, ['seq'], 1)[0] ?? null, value, rendering),
  integer: simple((value) => typeof value === 'number'),
  iterable: simple(isIterable),
  le: compared('<=', (order) => order <= 0),
  lessthan: less,
  lower: simple((value, rendering) => {
    const text = textOf(value, rendering);
    return text === text.toLowerCase() && text !== text.toUpperCase();
  }),
  lt: less,
  mapping: simple((value) => value instanceof Dict),
  ne: (...all) => !equal(...all),
  none: simple((value) => value === null),
  number: simple(isNumber),
  odd: (value, _, rendering) => remainder(value, 2, rendering) === 1,
  sameas: (value, args) => {
    const [other = null] = bind('sameas', args, ['other'], 1);
    return value === other;
  },
  sequence: simple(
    (value) => typeof value === 'string' || (sizeOf(value) !== undefined && !(value instanceof DictView)),
  ),
  string: simple((value) => typeof value === 'string'),
  test: simple((value) => typeof value === 'string' && Object.hasOwn(TESTS, value)),
  true: simple((value) => value === true),
  undefined: simple((value) => value instanceof Undefined),
  upper: simple((value, rendering) => {
    const text = textOf(value, rendering);
    return text === text.toUpperCase() && text !== text.toLowerCase();
  }),
};
