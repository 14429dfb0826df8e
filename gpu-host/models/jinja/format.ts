import { TemplateError } from './errors.ts';
import { numberOf } from './operators.ts';
import { lengthOf } from './text.ts';
import {
  type CallArguments,
  Dict,
  Float,
  floatText,
  representation,
  Tuple,
  textOf,
  typeName,
  type Value,
} from './values.ts';

/** Largest width and precision of a formatted value. */
const MAX_WIDTH = 10_000;

/** `text % values`: `%s`, `%(name)s`, `%5.2f`, … */
export function formatPercent(text: string, values: Value): string {
  const items = values instanceof Tuple ? values.items : [values];
  let used = 0;
  const take = (): Value => {
    const value = items[used++];
    if (value === undefined) throw new TemplateError('not enough arguments for format string');
    return value;
  };
  const width = (written: string | undefined): number | undefined => {
    if (written === undefined || written === '') return written === '' ? 0 : undefined;
    return Number(written === '*' ? take() : written);
  };
  let usesNames = false;
  const result = text.replace(
    /%(?:\(([^)]*)\))?([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*)?)?[hlL]?([\s\S]?)/g,
    (written, name?: string, flags = '', widthText?: string, precisionText?: string, type = '') => {
      if (type === '%') return '%';
      const minimum = width(widthText);
      const precision = written.includes('.') ? width(precisionText ?? '') : undefined;
      let value: Value;
      if (name === undefined) value = take();
      else {
        usesNames = true;
        const named = values instanceof Dict ? values.get(name) : undefined;
        if (named === undefined) throw new TemplateError(`format requires a mapping with the key '${name}'`);
        value = named;
      }
      return percent(value, type, flags, minimum, precision);
    },
  );
  if (!usesNames && used < items.length && !(values instanceof Dict)) {
    throw new TemplateError('not all arguments converted during string formatting');
  }
  return result;
}

function percent(value: Value, type: string, flags: string, width: number | undefined, precision?: number): string {
  const align = flags.includes('-') ? '<' : flags.includes('0') && !'srac'.includes(type) ? '=' : '>';
  const fill = align === '=' ? '0' : ' ';
  const sign = flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '-';
  const spec: Spec = { fill, align, sign, isAlternate: flags.includes('#'), width, precision, grouping: '', type: '' };
  switch (type) {
    case 's':
      return formatText(textOf(value), spec);
    case 'r':
    case 'a':
      return formatText(representation(value), spec);
    case 'c':
      return formatText(typeof value === 'number' ? String.fromCodePoint(value) : textOf(value), spec);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const number = numberOf(value);
      const isDecimal = 'diu'.includes(type);
      if (number === undefined || (!isDecimal && value instanceof Float)) {
        throw new TemplateError(`%${type} format: a real number is required, not ${typeName(value)}`);
      }
      return formatNumber(Math.trunc(number), { ...spec, precision: undefined, type: isDecimal ? 'd' : type });
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      const number = numberOf(value);
      if (number === undefined) throw new TemplateError(`must be real number, not ${typeName(value)}`);
      return formatNumber(new Float(number), { ...spec, type });
    }
    default:
      throw new TemplateError(`unsupported format character '${type}'`);
  }
}

/** Looks up `.name` and `[key]` in a field of `str.format`, with the rules of the sandbox. */
export interface FieldLookup {
  attribute(object: Value, name: string): Value;
  item(object: Value, key: Value): Value;
}

/** `text.format(…)`. */
export function formatBraces(text: string, args: CallArguments, lookup: FieldLookup): string {
  let automatic = 0;
  const expand = (template: string, depth: number): string => {
    if (depth > 2) throw new TemplateError('Max string recursion exceeded');
    let result = '';
    for (let at = 0; at < template.length; ) {
      const char = template[at] ?? '';
      if (char !== '{' && char !== '}') {
        result += char;
        at++;
      } else if (template[at + 1] === char) {
        result += char;
        at += 2;
      } else if (char === '}') {
        throw new TemplateError("Single '}' encountered in format string");
      } else {
        let end = at + 1;
        for (let open = 1; end < template.length; end++) {
          if (template[end] === '{') open++;
          else if (template[end] === '}' && --open === 0) break;
        }
        if (end >= template.length) throw new TemplateError("expected '}' before end of string");
        result += field(template.slice(at + 1, end), depth);
        at = end + 1;
      }
    }
    return result;
  };
  const field = (written: string, depth: number): string => {
    const [, path = '', conversion, spec = ''] = /^([^!:]*)(?:!([^:]))?(?::([\s\S]*))?$/.exec(written) ?? [];
    const [, first = '', rest = ''] = /^([^.[]*)([\s\S]*)$/.exec(path) ?? [];
    const key = first === '' ? String(automatic++) : first;
    let value = /^\d+$/.test(key) ? args.positional[Number(key)] : args.named.get(key);
    if (value === undefined) throw new TemplateError(`str.format() has no argument '${key}'`);
    for (const [, name, index] of rest.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
      if (name !== undefined) value = lookup.attribute(value, name);
      else value = lookup.item(value, index !== undefined && /^\d+$/.test(index) ? Number(index) : (index ?? ''));
    }
    if (conversion === 'r' || conversion === 'a') value = representation(value);
    else if (conversion === 's') value = textOf(value);
    return formatValue(value, spec === '' ? '' : expand(spec, depth + 1));
  };
  return expand(text, 1);
}

interface Spec {
  readonly fill: string;
  readonly align: string;
  readonly sign: string;
  readonly isAlternate: boolean;
  readonly width: number | undefined;
  readonly precision: number | undefined;
  readonly grouping: string;
  readonly type: string;
}

/** `format(value, spec)`. */
function formatValue(value: Value, written: string): string {
  if (written === '') return textOf(value);
  const match = /^(?:([\s\S])?([<>=^]))?([-+ ])?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u.exec(written);
  if (match === null) throw new TemplateError(`Invalid format specifier '${written}'`);
  const [, fill, align, sign = '-', alternate, zero, width, grouping = '', precision, type = ''] = match;
  const isNumber = numberOf(value) !== undefined;
  const spec: Spec = {
    fill: fill ?? (zero ? '0' : ' '),
    align: align ?? (zero && isNumber ? '=' : isNumber ? '>' : '<'),
    sign,
    isAlternate: alternate !== undefined,
    width: width === undefined ? undefined : Number(width),
    precision: precision === undefined ? undefined : Number(precision),
    grouping,
    type,
  };
  if (!isNumber || type === 's') {
    if (type !== '' && type !== 's') {
      throw new TemplateError(`Unknown format code '${type}' for object of type '${typeName(value)}'`);
    }
    if (typeof value !== 'string') {
      throw new TemplateError(`unsupported format string passed to ${typeName(value)}.__format__`);
    }
    return formatText(textOf(value), spec);
  }
  return formatNumber(value, spec);
}

function formatText(text: string, { precision, ...spec }: Spec): string {
  return pad(precision === undefined ? text : Array.from(text).slice(0, precision).join(''), '', spec);
}

function formatNumber(value: Value, spec: Spec): string {
  const number = numberOf(value) ?? 0;
  const isNegative = number < 0 || Object.is(number, -0);
  const digits = group(magnitude(Math.abs(number), value instanceof Float, spec), spec.grouping);
  return pad(digits, isNegative ? '-' : spec.sign === '-' ? '' : spec.sign, { ...spec, align: spec.align });
}

/** The digits of a number of at least 0. */
function magnitude(number: number, isFloat: boolean, { type, precision, isAlternate }: Spec): string {
  const places = Math.min(precision ?? 6, 99);
  switch (type) {
    case 'x':
    case 'X': {
      const hex = (isAlternate ? '0x' : '') + number.toString(16);
      return type === 'X' ? hex.toUpperCase() : hex;
    }
    case 'o':
      return (isAlternate ? '0o' : '') + number.toString(8);
    case 'b':
      return (isAlternate ? '0b' : '') + number.toString(2);
    case 'd':
    case 'n':
      return String(number);
    case 'f':
    case 'F':
      return Number.isFinite(number) ? fixed(number, places) : floatText(number);
    case '%':
      return `${fixed(number * 100, places)}%`;
    case 'e':
    case 'E': {
      const text = withExponent(number.toExponential(places));
      return type === 'E' ? text.toUpperCase() : text;
    }
    case 'g':
    case 'G':
      return general(number, places === 0 ? 1 : places);
    default:
      if (!isFloat) return String(number);
      return precision === undefined ? floatText(number) : generalFloat(number, places);
  }
}

/** `toFixed`, but a tie is rounded to an even digit. @param places from 0 to 99 */
export function fixed(number: number, places: number): string {
  if (number >= 1e21) return String(BigInt(number)) + (places === 0 ? '' : `.${'0'.repeat(places)}`);
  // A tie has few digits, and this is exact up to 100.
  const exact = number.toFixed(100);
  const end = exact.indexOf('.') + 1 + places;
  const kept = exact.slice(0, places === 0 ? end - 1 : end);
  return /^50*$/.test(exact.slice(end)) && /[02468]$/.test(kept) ? kept : number.toFixed(places);
}

const withExponent = (text: string): string => text.replace(/e([+-])(\d)$/, 'e$10$2');

/** `%g`: `places` significant digits without zeros at the end. */
function general(number: number, places: number): string {
  if (!Number.isFinite(number)) return floatText(number);
  const exponent = number === 0 ? 0 : Number(number.toExponential(places - 1).split('e')[1]);
  const isSmall = exponent < -4 || exponent >= places;
  const text = isSmall
    ? number.toExponential(places - 1)
    : fixed(number, Math.min(99, Math.max(0, places - 1 - exponent)));
  const [digits = '', power] = text.split('e');
  const short = digits.includes('.') ? digits.replace(/\.?0+$/, '') : digits;
  return power === undefined ? short : withExponent(`${short}e${power}`);
}

/** A float with a precision and no type: as `%g`, with at least one digit after the point. */
function generalFloat(number: number, places: number): string {
  const text = general(number, Math.max(places, 1));
  return /[.en]/.test(text) ? text : `${text}.0`;
}

function group(digits: string, separator: string): string {
  if (separator === '') return digits;
  const [, whole = '', rest = ''] = /^(\d+)([\s\S]*)$/.exec(digits) ?? [];
  return whole.replace(/\B(?=(\d{3})+$)/g, separator) + rest;
}

function pad(text: string, sign: string, { fill, align, width }: Omit<Spec, 'precision'>): string {
  if (width !== undefined && width > MAX_WIDTH) throw new TemplateError(`a format of ${width} characters is too wide`);
  const missing = Math.max(0, (width ?? 0) - lengthOf(sign + text));
  switch (align) {
    case '<':
      return sign + text + fill.repeat(missing);
    case '^':
      return fill.repeat(Math.floor(missing / 2)) + sign + text + fill.repeat(Math.ceil(missing / 2));
    case '=':
      return sign + fill.repeat(missing) + text;
    default:
      return fill.repeat(missing) + sign + text;
  }
}
