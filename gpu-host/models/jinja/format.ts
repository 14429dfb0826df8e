import { TemplateError } from './errors.ts';
import { numberOf } from './operators.ts';
import { lengthOf } from './text.ts';
import {
  type CallArguments,
  Dict,
  Float,
  floatText,
  type Meter,
  representation,
  Tuple,
  textOf,
  typeName,
  type Value,
} from './values.ts';

/** Largest width and precision of a formatted value. */
const MAX_WIDTH = 10_000;

/** Flags, width, precision and type of a field of `%`, behind the name. */
const PERCENT = /([-+ #0]*)(\d+|\*)?(\.(?:\d+|\*)?)?[hlL]?([\s\S]?)/y;

/** `text % values`: `%s`, `%(name)s`, `%5.2f`, … */
export function formatPercent(text: string, values: Value, meter: Meter): string {
  const items = values instanceof Tuple ? values.items : [values];
  let used = 0;
  const take = (): Value => {
    const value = items[used++];
    if (value === undefined) throw new TemplateError('not enough arguments for format string');
    return value;
  };
  const numberIn = (written: string): number => Number(written === '*' ? take() : written);
  let usesNames = false;
  let result = '';
  let at = 0;
  for (let mark = text.indexOf('%'); mark !== -1; mark = text.indexOf('%', at)) {
    result += text.slice(at, mark);
    at = mark + 1;
    let name: string | undefined;
    if (text[at] === '(') {
      const end = text.indexOf(')', at);
      if (end === -1) throw new TemplateError('incomplete format key');
      name = text.slice(at + 1, end);
      at = end + 1;
    }
    PERCENT.lastIndex = at;
    const [written = '', flags = '', widthText, precisionText, type = ''] = PERCENT.exec(text) ?? [];
    at += written.length;
    if (type === '%') {
      result += '%';
      continue;
    }
    const minimum = widthText === undefined ? undefined : numberIn(widthText);
    const precision = precisionText === undefined ? undefined : numberIn(precisionText.slice(1));
    let value: Value;
    if (name === undefined) value = take();
    else {
      usesNames = true;
      const named = values instanceof Dict ? values.get(name, meter) : undefined;
      if (named === undefined) throw new TemplateError(`format requires a mapping with the key '${name}'`);
      value = named;
    }
    const field = percent(value, type, flags, minimum, precision, meter);
    meter.text(field.length);
    result += field;
  }
  if (!usesNames && used < items.length && !(values instanceof Dict)) {
    throw new TemplateError('not all arguments converted during string formatting');
  }
  return result + text.slice(at);
}

function percent(
  value: Value,
  type: string,
  flags: string,
  width: number | undefined,
  precision: number | undefined,
  meter: Meter,
): string {
  meter.steps(1);
  const align = flags.includes('-') ? '<' : flags.includes('0') && !'srac'.includes(type) ? '=' : '>';
  const fill = align === '=' ? '0' : ' ';
  const sign = flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '-';
  const spec: Spec = { fill, align, sign, isAlternate: flags.includes('#'), width, precision, grouping: '', type: '' };
  switch (type) {
    case 's':
      return formatText(textOf(value, meter), spec, meter);
    case 'r':
    case 'a':
      return formatText(representation(value, meter), spec, meter);
    case 'c':
      return formatText(typeof value === 'number' ? String.fromCodePoint(value) : textOf(value, meter), spec, meter);
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
export function formatBraces(text: string, args: CallArguments, lookup: FieldLookup & Meter): string {
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
    lookup.steps(1);
    const [, path = '', conversion, spec = ''] = /^([^!:]*)(?:!([^:]))?(?::([\s\S]*))?$/.exec(written) ?? [];
    const [, first = '', rest = ''] = /^([^.[]*)([\s\S]*)$/.exec(path) ?? [];
    const key = first === '' ? String(automatic++) : first;
    let value = /^\d+$/.test(key) ? args.positional[Number(key)] : args.named.get(key);
    if (value === undefined) throw new TemplateError(`str.format() has no argument '${key}'`);
    for (let at = 0; at < rest.length; ) {
      lookup.steps(1);
      if (rest[at] === '.') {
        const name = /[^.[]*/y;
        name.lastIndex = at + 1;
        const [written = ''] = name.exec(rest) ?? [];
        if (written === '') throw new TemplateError('Empty attribute in format string');
        value = lookup.attribute(value, written);
        at += 1 + written.length;
      } else if (rest[at] === '[') {
        const end = rest.indexOf(']', at);
        if (end === -1) throw new TemplateError("Missing ']' in format string");
        const index = rest.slice(at + 1, end);
        if (index === '') throw new TemplateError('Empty attribute in format string');
        value = lookup.item(value, /^\d+$/.test(index) ? Number(index) : index);
        at = end + 1;
      } else throw new TemplateError("Only '.' or '[' may follow ']' in format field specifier");
    }
    if (conversion === 'r' || conversion === 'a') value = representation(value, lookup);
    else if (conversion === 's') value = textOf(value, lookup);
    const formatted = formatValue(value, spec === '' ? '' : expand(spec, depth + 1), lookup);
    lookup.text(formatted.length);
    return formatted;
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
function formatValue(value: Value, written: string, meter: Meter): string {
  if (written === '') return textOf(value, meter);
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
    return formatText(value, spec, meter);
  }
  return formatNumber(value, spec);
}

function formatText(text: string, { precision, ...spec }: Spec, meter: Meter): string {
  meter.text(text.length);
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
