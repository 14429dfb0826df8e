import { TemplateError } from './errors.ts';
import { compareTexts, indexed } from './text.ts';
import {
  Dict,
  DictView,
  Float,
  Generator,
  isList,
  iterate,
  type Meter,
  Range,
  sizeOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

/** The value of a number, or of a boolean as 0 or 1; undefined for others. */
export function numberOf(value: Value): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return Number(value);
  return value instanceof Float ? value.value : undefined;
}

export function areEqual(a: Value, b: Value, meter: Meter): boolean {
  meter.steps(1);
  if (typeof a === 'string' && typeof b === 'string') {
    // Two texts of different lengths differ without a look at them.
    if (a.length === b.length) meter.text(a.length);
    return a === b;
  }
  if (a === b) return true;
  const [left, right] = [numberOf(a), numberOf(b)];
  if (left !== undefined && right !== undefined) return left === right;
  if (isList(a) && isList(b)) return areItemsEqual(a, b, meter);
  if (a instanceof Tuple && b instanceof Tuple) return areItemsEqual(a.items, b.items, meter);
  if (a instanceof Dict && b instanceof Dict) {
    if (a.size !== b.size) return false;
    for (const [key, value] of a.entries()) {
      const other = b.get(key, meter);
      if (other === undefined || !areEqual(value, other, meter)) return false;
    }
    return true;
  }
  if (a instanceof Range && b instanceof Range) {
    return a.length === b.length && (a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step)));
  }
  return a instanceof Undefined && b instanceof Undefined;
}

const areItemsEqual = (a: readonly Value[], b: readonly Value[], meter: Meter): boolean =>
  a.length === b.length && a.every((item, i) => areEqual(item, b[i] ?? null, meter));

/** The order of two values: negative, 0, positive, or NaN. @throws TemplateError for types without an order */
export function compareValues(a: Value, b: Value, operator: string, meter: Meter): number {
  meter.steps(1);
  const [left, right] = [numberOf(a), numberOf(b)];
  if (left !== undefined && right !== undefined) return left === right ? 0 : left - right;
  if (typeof a === 'string' && typeof b === 'string') {
    meter.text(Math.min(a.length, b.length));
    return compareTexts(a, b);
  }
  if (isList(a) && isList(b)) return compareItems(a, b, operator, meter);
  if (a instanceof Tuple && b instanceof Tuple) return compareItems(a.items, b.items, operator, meter);
  for (const value of [a, b]) if (value instanceof Undefined) throw new TemplateError(value.message);
  throw new TemplateError(`'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

function compareItems(a: readonly Value[], b: readonly Value[], operator: string, meter: Meter): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const [left = null, right = null] = [a[i], b[i]];
    if (!areEqual(left, right, meter)) return compareValues(left, right, operator, meter);
  }
  return a.length - b.length;
}

/** `item in container`. */
export function contains(container: Value, item: Value, meter: Meter): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') {
      throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    }
    meterSearch(container, item, meter);
    return container.includes(item);
  }
  if (container instanceof Dict) return container.has(item, meter);
  if (container instanceof DictView && container.kind === 'keys') return container.dict.has(item, meter);
  if (container instanceof Range) {
    const number = numberOf(item);
    return number !== undefined && container.includes(number);
  }
  if (sizeOf(container) === undefined && !(container instanceof Generator)) {
    throw new TemplateError(`argument of type '${typeName(container)}' is not iterable`);
  }
  for (const each of iterate(container)) {
    meter.steps(1);
    if (areEqual(each, item, meter)) return true;
  }
  return false;
}

/** Comparisons of characters in a search that count as one character: nearly all of them end at the first difference. */
const SEARCHED_A_CHARACTER = 16;

/** Reports a search of `part` in `text`, whose comparisons are at most the product of the lengths. */
export function meterSearch(text: string, part: string, meter: Meter): void {
  meter.steps(Math.floor((text.length * (1 + part.length / SEARCHED_A_CHARACTER)) / 64));
}

/** `object[index]` for an index that is a number or a key; undefined where Python raises an error. */
export function itemAt(object: Value, index: Value, meter: Meter): Value | undefined {
  if (object instanceof Dict) return isList(index) || index instanceof Dict ? undefined : object.get(index, meter);
  if (typeof index !== 'number' && typeof index !== 'boolean') return undefined;
  // Python counts characters, so a text is read from its start.
  if (typeof object === 'string') meter.text(object.length);
  const items = sequenceOf(object);
  if (items === undefined) return undefined;
  const at = Number(index) + (Number(index) < 0 ? items.length : 0);
  if (at < 0 || at >= items.length) return undefined;
  return object instanceof Range ? object.at(at) : (items as string | readonly Value[])[at];
}

const sequenceOf = (value: Value): string | readonly Value[] | Range | undefined => {
  if (typeof value === 'string') return indexed(value);
  if (isList(value) || value instanceof Range) return value;
  return value instanceof Tuple ? value.items : undefined;
};

/** `object[start:stop:step]`. */
export function sliceOf(object: Value, bounds: readonly (Value | null)[], meter: Meter): Value {
  if (typeof object === 'string') meter.text(object.length);
  const items = sequenceOf(object);
  if (items === undefined) throw new TemplateError(`'${typeName(object)}' object cannot be sliced`);
  const [first, last, by] = bounds.map((bound) => {
    if (bound === null || bound === undefined) return undefined;
    if (typeof bound !== 'number' && typeof bound !== 'boolean') {
      throw new TemplateError('slice indices must be integers or None or have an __index__ method');
    }
    return Number(bound);
  });
  const step = by ?? 1;
  if (step === 0) throw new TemplateError('slice step cannot be zero');
  const { length } = items;
  const clamp = (bound: number): number =>
    Math.min(Math.max(bound < 0 ? bound + length : bound, step < 0 ? -1 : 0), step < 0 ? length - 1 : length);
  const start = first === undefined ? (step < 0 ? length - 1 : 0) : clamp(first);
  const stop = last === undefined ? (step < 0 ? -1 : length) : clamp(last);
  if (object instanceof Range) return new Range(object.at(start), object.at(stop), object.step * step);
  if (typeof object !== 'string') meter.steps(Math.max(0, Math.ceil((stop - start) / step)));
  const kept: Value[] = [];
  for (let i = start; step > 0 ? i < stop : i > stop; i += step) kept.push((items as readonly Value[])[i] ?? null);
  if (typeof object === 'string') return kept.join('');
  return object instanceof Tuple ? new Tuple(kept) : kept;
}

/** `left operator right`. @throws TemplateError for types that the operator does not take */
export function binary(operator: string, left: Value, right: Value, meter: Meter): Value {
  for (const value of [left, right]) if (value instanceof Undefined) throw new TemplateError(value.message);
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a !== undefined && b !== undefined) {
    return arithmetic(operator, a, b, left instanceof Float || right instanceof Float);
  }
  if (operator === '+') {
    if (typeof left === 'string' && typeof right === 'string') {
      meter.text(left.length + right.length);
      return left + right;
    }
    if (isList(left) && isList(right)) {
      meter.steps(left.length + right.length);
      return left.concat(right);
    }
    if (left instanceof Tuple && right instanceof Tuple) {
      meter.steps(left.items.length + right.items.length);
      return new Tuple(left.items.concat(right.items));
    }
    if (typeof left === 'string') {
      throw new TemplateError(`can only concatenate str (not "${typeName(right)}") to str`);
    }
  }
  if (operator === '*') {
    const repeated = repeat(left, right, meter) ?? repeat(right, left, meter);
    if (repeated !== undefined) return repeated;
  }
  throw new TemplateError(`unsupported operand types for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

function repeat(value: Value, times: Value, meter: Meter): Value | undefined {
  if (typeof times !== 'number' && typeof times !== 'boolean') return undefined;
  const count = Math.max(0, Number(times));
  if (typeof value === 'string') {
    meter.text(value.length * count);
    return value.repeat(count);
  }
  const items = isList(value) ? value : value instanceof Tuple ? value.items : undefined;
  if (items === undefined) return undefined;
  meter.steps(items.length * count);
  const repeated = Array.from({ length: items.length * count }, (_, i) => items[i % items.length] ?? null);
  return isList(value) ? repeated : new Tuple(repeated);
}

function arithmetic(operator: string, a: number, b: number, isFloat: boolean): Value {
  switch (operator) {
    case '+':
      return result(a + b, isFloat);
    case '-':
      return result(a - b, isFloat);
    case '*':
      return result(a * b, isFloat);
    case '/':
      if (b === 0) throw new TemplateError('division by zero');
      return new Float(a / b);
    case '//':
      if (b === 0) throw new TemplateError('division by zero');
      return result(Math.floor(a / b), isFloat);
    case '%': {
      if (b === 0) throw new TemplateError('modulo by zero');
      // The result has the sign of the divisor.
      const rest = a % b;
      return result(rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest, isFloat);
    }
    case '**':
      if (a === 0 && b < 0) throw new TemplateError('0.0 cannot be raised to a negative power');
      if (a < 0 && !Number.isInteger(b)) throw new TemplateError('a power is a complex number, which is not supported');
      return result(a ** b, isFloat || b < 0);
    default:
      throw new TemplateError(`unknown operator "${operator}"`);
  }
}

function result(value: number, isFloat: boolean): Value {
  if (isFloat) return new Float(value);
  if (!Number.isSafeInteger(value)) throw new TemplateError('an integer beyond 2^53 is not supported');
  // Integers have no negative zero.
  return value + 0;
}
