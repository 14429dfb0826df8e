import { TemplateError } from './errors.ts';
import { type FieldLookup, formatBraces } from './format.ts';
import { areEqual, meterSearch, sliceOf } from './operators.ts';
import {
  capitalize,
  lengthOf,
  pointIndex,
  splitLines,
  splitSpaces,
  splitSpacesFromEnd,
  title,
  trimEnd,
  trimStart,
} from './text.ts';
import {
  type CallArguments,
  Callable,
  Dict,
  DictView,
  isList,
  iterate,
  type Meter,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

/** The values of a function's parameters, in their order; undefined for a parameter without an argument. */
type Bound = readonly (Value | undefined)[];

/**
 * The arguments of a call in the order of the function's parameters.
 *
 * @param required number of parameters that need an argument
 * @throws TemplateError for too many, unknown or missing arguments
 */
export function bind(
  name: string,
  { positional, named }: CallArguments,
  parameters: readonly string[],
  required = 0,
): Bound {
  if (positional.length > parameters.length) {
    throw new TemplateError(`${name}() takes at most ${parameters.length} arguments (${positional.length} given)`);
  }
  const bound: (Value | undefined)[] = [...positional];
  for (const [key, value] of named) {
    const index = parameters.indexOf(key);
    if (index === -1) throw new TemplateError(`${name}() got an unexpected keyword argument '${key}'`);
    if (bound[index] !== undefined) throw new TemplateError(`${name}() got multiple values for argument '${key}'`);
    bound[index] = value;
  }
  for (let i = 0; i < required; i++) {
    if (bound[i] === undefined) throw new TemplateError(`${name}() missing the argument '${parameters[i]}'`);
  }
  return bound;
}

/** A text argument. @throws TemplateError for any other type */
export function asText(value: Value | undefined, name: string): string {
  if (typeof value === 'string') return value;
  if (value instanceof Undefined) throw new TemplateError(value.message);
  throw new TemplateError(`${name}() needs a str, not ${typeName(value ?? null)}`);
}

/** An integer argument. @throws TemplateError for any other type */
export function asInteger(value: Value | undefined, name: string): number {
  if (typeof value === 'number' || typeof value === 'boolean') return Number(value);
  throw new TemplateError(`${name}() needs an int, not ${typeName(value ?? null)}`);
}

export const isGiven = (value: Value | undefined): value is Exclude<Value, null> =>
  value !== undefined && value !== null;

/** What methods and filters need of the rendering. */
export interface Rendering extends Meter, FieldLookup {}

interface Method<T> {
  readonly parameters: readonly string[];
  readonly required: number;
  readonly run: (self: T, args: Bound, rendering: Rendering) => Value;
}

/** The names of optional parameters end with `?`. */
function method<T>(parameters: string, run: Method<T>['run']): Method<T> {
  const names = parameters.split(' ').filter((name) => name !== '');
  return {
    parameters: names.map((name) => name.replace('?', '')),
    required: names.filter((name) => !name.endsWith('?')).length,
    run,
  };
}

/** Whether an affix, or one of a tuple of them, holds. */
function hasAffix(affixes: Value | undefined, name: string, meter: Meter, holds: (affix: string) => boolean): boolean {
  const each = affixes instanceof Tuple ? affixes.items : [affixes];
  return each.some((one) => {
    const affix = asText(one, name);
    meter.steps(1);
    meter.text(affix.length);
    return holds(affix);
  });
}

function within(self: string, start: Value | undefined, end: Value | undefined, meter: Meter): string {
  return start === undefined && end === undefined
    ? self
    : String(sliceOf(self, [start ?? null, end ?? null, null], meter));
}

/** Index of a text, in code points, or -1. */
function find(self: string, [sub, start, end]: Bound, name: string, fromEnd: boolean, meter: Meter): number {
  const part = within(self, start, end, meter);
  const text = asText(sub, name);
  meterSearch(part, text, meter);
  const unit = fromEnd ? part.lastIndexOf(text) : part.indexOf(text);
  if (unit === -1) return -1;
  const first = isGiven(start) ? asInteger(start, name) : 0;
  const offset = first < 0 ? Math.max(0, lengthOf(self) + first) : first;
  return offset + pointIndex(part, unit);
}

function found(index: number): number {
  if (index === -1) throw new TemplateError('substring not found');
  return index;
}

function split(self: string, [separator, maximum]: Bound, fromEnd: boolean, meter: Meter): readonly string[] {
  const limit = maximum === undefined ? -1 : asInteger(maximum, 'split');
  if (!isGiven(separator)) return (fromEnd ? splitSpacesFromEnd : splitSpaces)(self, limit);
  const text = asText(separator, 'split');
  if (text === '') throw new TemplateError('empty separator');
  meterSearch(self, text, meter);
  const parts = self.split(text);
  meter.steps(parts.length / PARTS_A_STEP);
  if (limit < 0 || parts.length <= limit + 1) return parts;
  return fromEnd
    ? [parts.slice(0, parts.length - limit).join(text), ...parts.slice(parts.length - limit)]
    : [...parts.slice(0, limit), parts.slice(limit).join(text)];
}

function partition(self: string, separator: Value | undefined, fromEnd: boolean, meter: Meter): Tuple {
  const text = asText(separator, 'partition');
  if (text === '') throw new TemplateError('empty separator');
  meterSearch(self, text, meter);
  const at = fromEnd ? self.lastIndexOf(text) : self.indexOf(text);
  if (at === -1) return new Tuple(fromEnd ? ['', '', self] : [self, '', '']);
  return new Tuple([self.slice(0, at), text, self.slice(at + text.length)]);
}

/** Parts of a text that count as one step. */
const PARTS_A_STEP = 16;

/** Replaces the first `limit` occurrences, all if it is negative. */
export function replaceText(self: string, from: string, to: string, limit: number, meter: Meter): string {
  meterSearch(self, from, meter);
  const parts = from === '' ? ['', ...self, ''] : self.split(from);
  const count = limit < 0 ? parts.length - 1 : Math.min(limit, parts.length - 1);
  meter.steps(parts.length / PARTS_A_STEP);
  meter.text(self.length + count * to.length);
  return (
    parts.slice(0, count + 1).join(to) +
    parts
      .slice(count)
      .slice(1)
      .map((part) => from + part)
      .join('')
  );
}

/** @param missing characters to add on the left and on the right, of a number in total */
function justify(
  self: string,
  [width, fill]: Bound,
  name: string,
  rendering: Meter,
  left: (missing: number, width: number) => number,
): string {
  const wide = asInteger(width, name);
  const char = fill === undefined ? ' ' : asText(fill, name);
  if (lengthOf(char) !== 1) throw new TemplateError('The fill character must be exactly one character long');
  const missing = Math.max(0, wide - lengthOf(self));
  rendering.text(self.length + missing);
  const before = left(missing, wide);
  return char.repeat(before) + self + char.repeat(missing - before);
}

/** Python's `str.center` puts the odd character on the left for odd widths. */
export const centered = (self: string, args: Bound, rendering: Meter): string =>
  justify(self, args, 'center', rendering, (missing, wide) => Math.floor(missing / 2) + (missing & wide & 1));

function expandTabs(self: string, size: number): string {
  let column = 0;
  let expanded = '';
  for (const char of self) {
    if (char === '\t') {
      const spaces = size > 0 ? size - (column % size) : 0;
      expanded += ' '.repeat(spaces);
      column += spaces;
    } else {
      expanded += char;
      column = char === '\n' || char === '\r' ? 0 : column + 1;
    }
  }
  return expanded;
}

/** Joins the texts of `items`. @throws TemplateError for items that are no texts */
function join(self: string, items: Value | undefined, meter: Meter): string {
  const texts: string[] = [];
  let length = 0;
  for (const item of iterate(items ?? null)) {
    if (typeof item !== 'string') {
      throw new TemplateError(`sequence item ${texts.length}: expected str instance, ${typeName(item)} found`);
    }
    meter.steps(1);
    length += item.length + self.length;
    texts.push(item);
  }
  meter.text(length);
  return texts.join(self);
}

const matches = (pattern: RegExp): Method<string> => method('', (self) => pattern.test(self));
const chars = (value: Value | undefined): string | undefined => (isGiven(value) ? asText(value, 'strip') : undefined);

const STRING_METHODS: Readonly<Record<string, Method<string>>> = {
  capitalize: method('', capitalize),
  casefold: method('', (self) => self.toLowerCase().replaceAll('ß', 'ss')),
  center: method('width fillchar?', centered),
  count: method('sub start? end?', (self, [sub, start, end], rendering) => {
    const text = asText(sub, 'count');
    const part = within(self, start, end, rendering);
    meterSearch(part, text, rendering);
    return text === '' ? lengthOf(part) + 1 : part.split(text).length - 1;
  }),
  endswith: method('suffix start? end?', (self, [suffix, start, end], rendering) => {
    const part = within(self, start, end, rendering);
    return hasAffix(suffix, 'endswith', rendering, (affix) => part.endsWith(affix));
  }),
  expandtabs: method('tabsize?', (self, [size], rendering) => {
    const wide = size === undefined ? 8 : asInteger(size, 'expandtabs');
    rendering.text(self.length + self.split('\t').length * wide);
    return expandTabs(self, wide);
  }),
  find: method('sub start? end?', (self, args, rendering) => find(self, args, 'find', false, rendering)),
  index: method('sub start? end?', (self, args, rendering) => found(find(self, args, 'index', false, rendering))),
  isalnum: matches(/^[\p{L}\p{N}]+$/u),
  isalpha: matches(/^\p{L}+$/u),
  isascii: matches(/^\p{ASCII}*$/u),
  isdecimal: matches(/^\p{Nd}+$/u),
  isdigit: matches(/^[\p{Nd}²³¹⁰⁴-⁹₀-₉]+$/u),
  isidentifier: matches(/^[\p{L}_][\p{L}\p{M}\p{N}_]*$/u),
  islower: method('', (self) => self === self.toLowerCase() && self !== self.toUpperCase()),
  isnumeric: matches(/^\p{N}+$/u),
  isprintable: matches(/^(?: |[^\p{C}\p{Z}])*$/u),
  isspace: method('', (self) => self !== '' && trimEnd(self) === ''),
  istitle: method('', (self) => self === title(self) && self.toLowerCase() !== self),
  isupper: method('', (self) => self === self.toUpperCase() && self !== self.toLowerCase()),
  join: method('iterable', (self, [items], rendering) => join(self, items, rendering)),
  ljust: method('width fillchar?', (self, args, rendering) => justify(self, args, 'ljust', rendering, () => 0)),
  lower: method('', (self) => self.toLowerCase()),
  lstrip: method('chars?', (self, [drop]) => trimStart(self, chars(drop))),
  partition: method('sep', (self, [separator], rendering) => partition(self, separator, false, rendering)),
  removeprefix: method('prefix', (self, [prefix]) => {
    const text = asText(prefix, 'removeprefix');
    return self.startsWith(text) ? self.slice(text.length) : self;
  }),
  removesuffix: method('suffix', (self, [suffix]) => {
    const text = asText(suffix, 'removesuffix');
    return text !== '' && self.endsWith(text) ? self.slice(0, -text.length) : self;
  }),
  replace: method('old new count?', (self, [from, to, count], rendering) => {
    const limit = count === undefined ? -1 : asInteger(count, 'replace');
    return replaceText(self, asText(from, 'replace'), asText(to, 'replace'), limit, rendering);
  }),
  rfind: method('sub start? end?', (self, args, rendering) => find(self, args, 'rfind', true, rendering)),
  rindex: method('sub start? end?', (self, args, rendering) => found(find(self, args, 'rindex', true, rendering))),
  rjust: method('width fillchar?', (self, args, rendering) =>
    justify(self, args, 'rjust', rendering, (missing) => missing),
  ),
  rpartition: method('sep', (self, [separator], rendering) => partition(self, separator, true, rendering)),
  rsplit: method('sep? maxsplit?', (self, args, rendering) => split(self, args, true, rendering)),
  rstrip: method('chars?', (self, [drop]) => trimEnd(self, chars(drop))),
  split: method('sep? maxsplit?', (self, args, rendering) => split(self, args, false, rendering)),
  splitlines: method('keepends?', (self, [keepEnds]) => splitLines(self, keepEnds === true || keepEnds === 1)),
  startswith: method('prefix start? end?', (self, [prefix, start, end], rendering) => {
    const part = within(self, start, end, rendering);
    return hasAffix(prefix, 'startswith', rendering, (affix) => part.startsWith(affix));
  }),
  strip: method('chars?', (self, [drop]) => trimEnd(trimStart(self, chars(drop)), chars(drop))),
  swapcase: method('', (self) =>
    Array.from(self, (char) => (char === char.toLowerCase() ? char.toUpperCase() : char.toLowerCase())).join(''),
  ),
  title: method('', title),
  upper: method('', (self) => self.toUpperCase()),
  zfill: method('width', (self, [width], rendering) => {
    const sign = /^[+-]/.exec(self)?.[0] ?? '';
    const missing = Math.max(0, asInteger(width, 'zfill') - lengthOf(self));
    rendering.text(self.length + missing);
    return sign + '0'.repeat(missing) + self.slice(sign.length);
  }),
};

function indexIn(items: Iterable<Value>, [value, start, end]: Bound, meter: Meter): number {
  let at = 0;
  for (const item of items) {
    meter.steps(1);
    const isWithin = at >= Number(start ?? 0) && at < Number(end ?? Number.POSITIVE_INFINITY);
    if (isWithin && areEqual(item, value ?? null, meter)) return at;
    at++;
  }
  throw new TemplateError('the value is not in the list');
}

const SEQUENCE_METHODS: Readonly<Record<string, Method<readonly Value[] | Tuple | Range>>> = {
  copy: method('', (self) => self),
  count: method('value', (self, [value], rendering) => {
    let count = 0;
    for (const item of iterate(self)) if (areEqual(item, value ?? null, rendering)) count++;
    return count;
  }),
  index: method('value start? stop?', (self, args, rendering) => indexIn(iterate(self), args, rendering)),
};

const DICT_METHODS: Readonly<Record<string, Method<Dict>>> = {
  copy: method('', (self) => self),
  get: method('key default?', (self, [key = null, fallback = null], rendering) => {
    const value = self.get(key, rendering);
    return value === undefined ? fallback : value;
  }),
  items: method('', (self) => new DictView('items', self)),
  keys: method('', (self) => new DictView('keys', self)),
  values: method('', (self) => new DictView('values', self)),
};

/** Methods that change a list or a dict, which the sandbox refuses. */
const CHANGES_LIST = new Set(['append', 'clear', 'pop', 'reverse', 'insert', 'sort', 'extend', 'remove']);
const CHANGES_DICT = new Set(['clear', 'pop', 'popitem', 'setdefault', 'update']);
/** Methods of Python's types that no chat template needs. */
const MISSING_METHODS = new Set(['encode', 'format_map', 'maketrans', 'translate', 'fromkeys']);

/** A method of a value, an `Undefined` for one that the sandbox refuses, or undefined if there is none. */
export function methodOf(object: Value, name: string, rendering: Rendering): Value | undefined {
  if (typeof object === 'string') {
    if (name === 'format') {
      return new Callable(name, (args) => {
        rendering.text(object.length);
        return formatBraces(object, args, rendering);
      });
    }
    return bound(STRING_METHODS, object, name, rendering) ?? missing('str', name);
  }
  if (object instanceof Dict) {
    if (CHANGES_DICT.has(name)) return refused(name, 'dict');
    return bound(DICT_METHODS, object, name, rendering) ?? missing('dict', name);
  }
  if (isList(object)) {
    return CHANGES_LIST.has(name) ? refused(name, 'list') : bound(SEQUENCE_METHODS, object, name, rendering);
  }
  if (object instanceof Tuple) {
    const named = object.names.indexOf(name);
    if (named !== -1) return object.items[named];
    return name === 'copy' ? undefined : bound(SEQUENCE_METHODS, object, name, rendering);
  }
  if (object instanceof Range) {
    if (name === 'start' || name === 'stop' || name === 'step') return object[name];
    return name === 'copy' ? undefined : bound(SEQUENCE_METHODS, object, name, rendering);
  }
  return undefined;
}

function bound<T>(
  methods: Readonly<Record<string, Method<T>>>,
  self: T,
  name: string,
  rendering: Rendering,
): Callable | undefined {
  if (!Object.hasOwn(methods, name)) return undefined;
  return new Callable(name, (args) => {
    const found = methods[name];
    if (found === undefined) return null;
    // Most methods of texts read the whole text.
    if (typeof self === 'string') rendering.text(self.length);
    return found.run(self, bind(name, args, found.parameters, found.required), rendering);
  });
}

const refused = (name: string, type: string): Undefined =>
  new Undefined(`access to attribute '${name}' of '${type}' object is unsafe.`);

function missing(type: string, name: string): Callable | undefined {
  if (!MISSING_METHODS.has(name)) return undefined;
  return new Callable(name, () => {
    throw new TemplateError(`the method ${type}.${name} is not supported in chat templates`);
  });
}
