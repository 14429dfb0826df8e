import { TemplateError } from './errors.ts';
import { compareTexts, lengthOf, quoted } from './text.ts';

/**
 * Reports work to the bounds on a rendering, before it is done. Each operation reports every value and character that it touches: values may share
 * parts, so a small template can make a value whose text or comparison has no end.
 */
export interface Meter {
  /** @param steps values read or made @throws TemplateError when a bound is reached */
  steps(steps: number): void;
  /** @param characters characters of a text that is read or made @throws TemplateError when a bound is reached */
  text(characters: number): void;
}

/** Counts nothing. For variables, whose size the request bounds. */
const UNMETERED: Meter = { steps: () => {}, text: () => {} };

/**
 * A value of a template, which behaves as the Python value that Jinja2 would have: a number is an `int` (a {@link Float} a `float`), an array a
 * `list`. No template changes a list or a dict, because transformers renders in an immutable sandbox.
 */
export type Value =
  | null
  | boolean
  | number
  | string
  | Float
  | readonly Value[]
  | Tuple
  | Dict
  | DictView
  | Range
  | Generator
  | Undefined
  | PythonObject
  | Callable;

export class Float {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

export class Tuple {
  readonly items: readonly Value[];
  /** Names of the items, in the tuples of `groupby`. */
  readonly names: readonly string[];

  constructor(items: readonly Value[], names: readonly string[] = []) {
    this.items = items;
    this.names = names;
  }
}

/** A `dict`, which keeps the order of its keys. */
export class Dict {
  readonly #entries = new Map<unknown, readonly [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]>, meter: Meter) {
    for (const [key, value] of entries) {
      const hash = hashOf(key, meter);
      this.#entries.set(hash, [this.#entries.get(hash)?.[0] ?? key, value]);
    }
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value, meter: Meter): Value | undefined {
    return this.#entries.get(hashOf(key, meter))?.[1];
  }

  has(key: Value, meter: Meter): boolean {
    return this.#entries.has(hashOf(key, meter));
  }

  entries(): Iterable<readonly [Value, Value]> {
    return this.#entries.values();
  }

  *keys(): Iterable<Value> {
    for (const [key] of this.entries()) yield key;
  }
}

/** A value that is the same for equal keys: 1, 1.0 and True are one key. @throws TemplateError for a list or a dict */
export function hashOf(key: Value, meter: Meter): unknown {
  meter.steps(1);
  if (typeof key === 'boolean') return Number(key);
  if (typeof key === 'string') meter.text(key.length);
  if (key instanceof Float) return key.value;
  if (key instanceof Tuple) {
    const hash = `tuple\0${key.items.map((item) => String(hashOf(item, meter))).join('\0')}`;
    meter.text(hash.length);
    return hash;
  }
  if (Array.isArray(key) || key instanceof Dict) throw new TemplateError(`unhashable type: '${typeName(key)}'`);
  return key instanceof Undefined ? Undefined : key;
}

/** The result of a dict's `keys`, `values` or `items`. */
export class DictView {
  readonly kind: 'keys' | 'values' | 'items';
  readonly dict: Dict;

  constructor(kind: DictView['kind'], dict: Dict) {
    this.kind = kind;
    this.dict = dict;
  }
}

/** A `range`, which makes its numbers only when they are read. */
export class Range {
  readonly start: number;
  readonly stop: number;
  readonly step: number;

  constructor(start: number, stop: number, step: number) {
    this.start = start;
    this.stop = stop;
    this.step = step;
  }

  get length(): number {
    return Math.max(0, Math.ceil((this.stop - this.start) / this.step));
  }

  at(index: number): number {
    return this.start + index * this.step;
  }

  includes(value: number): boolean {
    const index = (value - this.start) / this.step;
    return Number.isInteger(index) && index >= 0 && index < this.length;
  }
}

/** A generator or an iterator, whose items can be read once. It is true even when it has no items, and has no length. */
export class Generator {
  readonly items: Iterator<Value>;
  readonly typeName: string;

  constructor(items: Iterable<Value>, typeName = 'generator') {
    this.items = items[Symbol.iterator]();
    this.typeName = typeName;
  }
}

/** The value of a name that has none. It prints as nothing; most uses of it fail with `message`. */
export class Undefined {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}

export interface CallArguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

export class Callable {
  readonly name: string;
  readonly call: (args: CallArguments) => Value;

  constructor(name: string, call: (args: CallArguments) => Value) {
    this.name = name;
    this.call = call;
  }
}

/** An object of Jinja2 itself, such as `loop` or a namespace. */
export abstract class PythonObject {
  abstract readonly typeName: string;
  readonly isCallable: boolean = false;
  abstract attribute(name: string): Value | undefined;
  /** `str()` of the object. */
  abstract toText(meter: Meter): string;

  call(_args: CallArguments): Value {
    throw new TemplateError(`'${this.typeName}' object is not callable`);
  }
}

export class Namespace extends PythonObject {
  override readonly typeName = 'Namespace';
  readonly #values = new Map<string, Value>();

  override attribute(name: string): Value | undefined {
    return this.#values.get(name);
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }

  override toText(meter: Meter): string {
    return `<Namespace ${representation(new Dict(this.#values, meter), meter)}>`;
  }
}

/** JavaScript writes larger numbers with an exponent, so that a program of another language reads them as floats. */
const MAX_INTEGER = 1e21;

/** Maximum depth of lists and objects in variables. */
const MAX_DEPTH = 256;

/**
 * A value of a template from a JSON value. A number with a fraction is a float. Properties come from the object itself only, never from its
 * prototype.
 *
 * @throws TemplateError for a value that nests too deep, or that JSON does not have
 */
export function fromJson(json: unknown, depth = 0): Value {
  if (depth > MAX_DEPTH) throw new TemplateError(`the variables nest deeper than ${MAX_DEPTH}`);
  switch (typeof json) {
    case 'string':
    case 'boolean':
      return json;
    case 'number':
      return Number.isInteger(json) && Math.abs(json) < MAX_INTEGER ? json : new Float(json);
    case 'undefined':
      return new Undefined('the value is undefined');
    case 'object':
      if (json === null) return null;
      if (Array.isArray(json)) return json.map((item) => fromJson(item, depth + 1));
      return new Dict(
        Object.entries(json).map(([key, value]) => [key, fromJson(value, depth + 1)] as const),
        UNMETERED,
      );
    default:
      throw new TemplateError(`a variable is a ${typeof json}, which no template can read`);
  }
}

/** Whether a value is a Python `list`; `Array.isArray` does not narrow a readonly array. */
export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'number') return 'int';
  if (typeof value === 'string') return 'str';
  if (isList(value)) return 'list';
  if (value instanceof Float) return 'float';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof Dict) return 'dict';
  if (value instanceof DictView) return `dict_${value.kind}`;
  if (value instanceof Range) return 'range';
  if (value instanceof Undefined) return 'Undefined';
  return value instanceof Callable ? 'function' : value.typeName;
}

export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return value !== 0;
  if (value instanceof Float) return value.value !== 0;
  // The length of a text takes a look at each of its characters.
  return typeof value === 'string' ? value !== '' : (sizeOf(value) ?? 1) > 0;
}

/** `len()`, or undefined for a value without a length. */
export function sizeOf(value: Value): number | undefined {
  if (typeof value === 'string') return lengthOf(value);
  if (value instanceof Undefined) return 0;
  if (isList(value) || value instanceof Range) return value.length;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  return value instanceof DictView ? value.dict.size : undefined;
}

/** `iter()`. @throws TemplateError for a value that has no items */
export function iterate(value: Value): Iterable<Value> {
  if (typeof value === 'string' || isList(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (value instanceof Dict) return value.keys();
  if (value instanceof DictView) return viewed(value);
  if (value instanceof Range) return numbers(value);
  if (value instanceof Undefined) return [];
  // Not `Iterator.prototype[Symbol.iterator]` of the items: leaving a loop over it would close the generator.
  if (value instanceof Generator) return { [Symbol.iterator]: () => ({ next: () => value.items.next() }) };
  throw new TemplateError(`'${typeName(value)}' object is not iterable`);
}

function* viewed({ kind, dict }: DictView): Iterable<Value> {
  for (const [key, value] of dict.entries()) {
    yield kind === 'keys' ? key : kind === 'values' ? value : new Tuple([key, value]);
  }
}

function* numbers(range: Range): Iterable<Value> {
  for (let i = 0; i < range.length; i++) yield range.at(i);
}

export const isIterable = (value: Value): boolean =>
  typeof value === 'string' || value instanceof Generator || sizeOf(value) !== undefined;

/** `str()`: the text that a template prints. */
export function textOf(value: Value, meter: Meter): string {
  if (typeof value === 'string') return value;
  return value instanceof Undefined ? '' : representation(value, meter);
}

/** `repr()`. */
export function representation(value: Value, meter: Meter): string {
  meter.steps(1);
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'number') return integerText(value);
  if (typeof value === 'string') {
    meter.text(value.length);
    return quoted(value);
  }
  if (value instanceof Float) return floatText(value.value);
  const joined = (texts: readonly string[]): string => {
    meter.text(texts.reduce((sum, text) => sum + text.length + 2, 0));
    return texts.join(', ');
  };
  const inner = (items: Iterable<Value>): string => joined(Array.from(items, (item) => representation(item, meter)));
  if (isList(value)) return `[${inner(value)}]`;
  if (value instanceof Tuple) return value.items.length === 1 ? `(${inner(value.items)},)` : `(${inner(value.items)})`;
  if (value instanceof Dict) {
    const member = ([key, each]: readonly [Value, Value]): string =>
      `${representation(key, meter)}: ${representation(each, meter)}`;
    return `{${joined(Array.from(value.entries(), member))}}`;
  }
  if (value instanceof DictView) return `dict_${value.kind}([${inner(viewed(value))}])`;
  if (value instanceof Range) {
    return `range(${value.start}, ${value.stop}${value.step === 1 ? '' : `, ${value.step}`})`;
  }
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof PythonObject) return value.toText(meter);
  return value instanceof Callable ? `<function ${value.name}>` : `<${value.typeName} object>`;
}

const integerText = (value: number): string => (Number.isSafeInteger(value) ? String(value) : String(BigInt(value)));

/** Python's shortest text of a float, which has an exponent below 1e-4 and from 1e16 on. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const [digits = '', exponentText = '0'] = value.toExponential().split('e');
  const exponent = Number(exponentText);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const text = String(value);
  return text.includes('.') ? text : `${text}.0`;
}

export interface JsonOptions {
  readonly ensureAscii: boolean;
  readonly indent: string | null;
  readonly separators: readonly [string, string] | null;
  readonly sortKeys: boolean;
}

/** Python's `json.dumps`, which transformers uses for `tojson`. @throws TemplateError for values that JSON does not have */
export function jsonText(
  value: Value,
  { ensureAscii, indent, separators, sortKeys }: JsonOptions,
  meter: Meter,
): string {
  const [comma, colon] = separators ?? [indent === null ? ', ' : ',', ': '];
  const string = (text: string): string => {
    meter.text(text.length);
    return ensureAscii ? asciiJson(text) : `"${text.replace(UNSAFE, escaped)}"`;
  };
  const keyText = (key: Value): string => {
    if (typeof key === 'string') return key;
    if (key === null || typeof key !== 'object' || key instanceof Float) return write(key, '');
    throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
  };
  const bracketed = (open: string, close: string, items: readonly string[], newline: string): string => {
    if (items.length === 0) return open + close;
    const space = indent === null ? 0 : newline.length + indent.length;
    meter.text(items.reduce((sum, item) => sum + item.length + space, 0));
    if (indent === null) return open + items.join(comma) + close;
    return `${open}${newline}${indent}${items.join(`${comma}${newline}${indent}`)}${newline}${close}`;
  };
  const write = (each: Value, newline: string): string => {
    meter.steps(1);
    if (each === null) return 'null';
    if (typeof each === 'boolean') return String(each);
    if (typeof each === 'number') return integerText(each);
    if (typeof each === 'string') return string(each);
    if (each instanceof Float) return floatText(each.value).replace('inf', 'Infinity').replace('nan', 'NaN');
    const inside = newline + (indent ?? '');
    if (isList(each) || each instanceof Tuple) {
      const items = isList(each) ? each : each.items;
      return bracketed(
        '[',
        ']',
        items.map((item) => write(item, inside)),
        newline,
      );
    }
    if (each instanceof Dict) {
      let entries = [...each.entries()];
      if (sortKeys) {
        entries = entries.sort(([a], [b]) => {
          meter.steps(1);
          return compareTexts(keyText(a), keyText(b));
        });
      }
      const items = entries.map(([key, item]) => string(keyText(key)) + colon + write(item, inside));
      return bracketed('{', '}', items, newline);
    }
    throw new TemplateError(`Object of type ${typeName(each)} is not JSON serializable`);
  };
  return write(value, '\n');
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes control characters.
const UNSAFE = /["\\\u0000-\u001f]/g;
const SHORT: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\b': '\\b',
  '\f': '\\f',
};
const escaped = (char: string): string => SHORT[char] ?? `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
const asciiJson = (text: string): string => `"${text.replace(/["\\]|[^ -~]/g, escaped)}"`;
