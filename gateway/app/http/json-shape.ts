import { GatewayError } from '../errors/gateway-error.ts';

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
