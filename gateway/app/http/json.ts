import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { partsOf } from '#scheduler/invocations/types.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import type { Usage } from '../schemas/invocations.ts';

/** JSON that the gateway passes on unparsed. A tenant's output of 4 MiB takes up to a second to parse, and may be nested to any depth. */
export class JsonText {
  readonly text: string;

  /** @param text valid JSON */
  constructor(text: string) {
    this.text = text;
  }

  get value(): unknown {
    return jsonValue(this.text);
  }

  /** The value of a text that is cheap to parse: not longer than `maxCharacters`, and of the shape that requests may have. Undefined for others. */
  smallValue(maxCharacters: number): unknown {
    if (this.text.length > maxCharacters) return undefined;
    try {
      assertShape(new TextEncoder().encode(this.text), 'The output');
    } catch {
      return undefined;
    }
    return this.value;
  }
}

/** Splits the data of a `result` event into output and usage. The output stays text where the data has the form that `resultData` writes. */
export function resultIn(data: string): { readonly output: unknown; readonly usage?: Usage } {
  const parts = partsOf(data);
  if (parts) return { output: new JsonText(parts.output), usage: JSON.parse(parts.usage) };
  const { output = null, usage } = JSON.parse(data);
  return { output, usage };
}

const OUTPUT = ',"output":';

/** Like `JSON.stringify` of an object with members besides `output`, but keeps the text of an output that is a `JsonText`. */
export function jsonWithOutput({ output, ...members }: { readonly id: string; readonly output?: unknown }): string {
  if (!(output instanceof JsonText)) return JSON.stringify({ ...members, output });
  return `${JSON.stringify(members).slice(0, -1)}${OUTPUT}${output.text}}`;
}

/** Parses what `jsonWithOutput` wrote, but keeps the text of the output. @throws SyntaxError */
export function parseWithOutput(text: string): unknown {
  const at = outputAt(text);
  if (at < 0) return JSON.parse(text);
  const members: object = JSON.parse(`${text.slice(0, at)}}`);
  return { ...members, output: new JsonText(text.slice(at + OUTPUT.length, -1)) };
}

/** Index of the comma before the member `output`, in JSON without spaces; -1 without that member. Does not scan the output. */
function outputAt(text: string): number {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (isInString) {
      if (character === '\\') at += 1;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === '{' || character === '[') depth += 1;
    else if (character === '}' || character === ']') depth -= 1;
    else if (character === ',' && depth === 1 && text.startsWith(OUTPUT, at)) return at;
  }
  return -1;
}

/** Two functions of ECMAScript's `JSON` that TypeScript's library does not declare. */
const { rawJSON, isRawJSON } = JSON as typeof JSON & {
  readonly rawJSON: (text: string) => unknown;
  readonly isRawJSON: (value: unknown) => boolean;
};

/**
 * Parses JSON for a later `JSON.stringify`, which then writes every number as the text has it. A number that JavaScript would write in another
 * way, such as an integer above 2^53, becomes an object (`JSON.rawJSON`), so do not check the value or calculate with it.
 *
 * @throws SyntaxError
 */
export function exactJson(text: string): unknown {
  return jsonValue(text, (value, source) => {
    return typeof value === 'number' && source !== undefined && source !== String(value) ? rawJSON(source) : value;
  });
}

/** True for the object that `exactJson` gives in place of a number. */
export const isRawNumber = (value: unknown): boolean => isRawJSON(value);

/** True when `JSON.parse` rounds an integer of this JSON. */
export function roundsIntegers(text: string): boolean {
  let rounds = false;
  jsonValue(text, (value, source) => {
    if (typeof value === 'number') rounds ||= isRounded(source ?? '');
    return value;
  });
  return rounds;
}

/** True for the text of an integer that no JavaScript number equals. */
export function isRounded(text: string): boolean {
  if (!/^-?\d+$/.test(text)) return false;
  const value = Number(text);
  return !Number.isFinite(value) || BigInt(text) !== BigInt(value);
}

/** Deepest nesting of lists and objects: far more than requests need, far less than recursive readers can take. */
export const MAX_DEPTH = 256;
/** Maximum member names in all objects. Objects with many names cost far more to parse than their size suggests. */
export const MAX_NAMES = 50_000;
/** Maximum member names with escapes: the parser of inputs reads them slowly. Not lower, since some clients escape all characters beyond ASCII. */
export const MAX_ESCAPED_NAMES = 10_000;
/** Maximum member names with an escape that JSON needs, such as `\"`: the parser replaces each of them, and restores it after parsing. */
export const MAX_REWRITTEN_NAMES = 1000;
/** Maximum lists and objects. */
export const MAX_CONTAINERS = 100_000;

/** Maximum members of all lists and objects. */
export const MAX_VALUES = 1_000_000;

const COMMA = 0x2c;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const SLASH = 0x2f;
const LETTER_U = 0x75;
const LETTER_D = 0x64;
const ZERO = 0x30;
const EIGHT = 0x38;
/** The bit that makes an upper-case ASCII letter lower-case. */
const LOWER_CASE = 0x20;
const OPENING = 0x5b;
const CLOSING = 0x5d;
/** The one bit in which `{` differs from `[`, and `}` from `]`. */
const CURLY_BIT = 0x20;

/**
 * Throws `invalid-input` when JSON is nested too deeply or has too many names, values, lists or objects. Scans the bytes before any parser
 * reads them, and leaves invalid JSON to the parser.
 */
export function assertShape(bytes: Uint8Array, what: string): void {
  let depth = 0;
  let names = 0;
  let containers = 0;
  let values = 1;
  let isInString = false;
  let escapedNames = 0;
  let rewrittenNames = 0;
  /** True when the string that was read last has an escape. */
  let hasEscape = false;
  /** True when the string that was read last has an escape that JSON needs. */
  let hasNeededEscape = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (isInString) {
      if (byte === BACKSLASH) {
        at += 1;
        hasEscape = true;
        hasNeededEscape ||= isNeeded(bytes, at);
      } else if (byte === QUOTE) isInString = false;
    } else if (byte === QUOTE) {
      isInString = true;
      hasEscape = false;
      hasNeededEscape = false;
    } else if (byte === COLON) {
      names += 1;
      if (hasEscape) escapedNames += 1;
      if (hasNeededEscape) rewrittenNames += 1;
    } else if (byte === COMMA) values += 1;
    else if ((byte & ~CURLY_BIT) === OPENING) {
      depth += 1;
      containers += 1;
      if (depth > MAX_DEPTH) throw refused(what, `nests lists and objects more than ${MAX_DEPTH} deep`);
    } else if ((byte & ~CURLY_BIT) === CLOSING) depth -= 1;
  }
  if (names > MAX_NAMES) throw refused(what, `has more than ${MAX_NAMES} names`);
  if (escapedNames > MAX_ESCAPED_NAMES)
    throw refused(what, `has more than ${MAX_ESCAPED_NAMES} names with escapes; write characters as UTF-8`);
  if (rewrittenNames > MAX_REWRITTEN_NAMES)
    throw refused(what, `has more than ${MAX_REWRITTEN_NAMES} names with quotation marks, backslashes or controls`);
  if (values > MAX_VALUES) throw refused(what, `has more than ${MAX_VALUES} values`);
  if (containers > MAX_CONTAINERS) throw refused(what, `has more than ${MAX_CONTAINERS} lists and objects`);
}

/**
 * True for an escape that JSON needs. False for `\/` and for a character beyond ASCII. Half of a surrogate pair counts as needed, because it may be
 * alone.
 *
 * @param at index of the byte after the backslash
 */
function isNeeded(bytes: Uint8Array, at: number): boolean {
  if (bytes[at] !== LETTER_U) return bytes[at] !== SLASH;
  const [first = 0, second = 0, third = 0] = [bytes[at + 1], bytes[at + 2], bytes[at + 3]];
  if (first === ZERO && second === ZERO) return third < EIGHT;
  return (first | LOWER_CASE) === LETTER_D && second >= EIGHT;
}

function refused(what: string, why: string): GatewayError {
  return new GatewayError('invalid-input', `${what} ${why}.`, {
    field: '',
    hint: 'Send less at once: large data as one text, or as a file of the invocation.',
  });
}
