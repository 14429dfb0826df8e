import type { Vocabulary } from '../vocabulary.ts';

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OBJECT_START, OBJECT_END, ARRAY_START, ARRAY_END] = [0x7b, 0x7d, 0x5b, 0x5d];

/** An object's keys so far: the last one, and those before it. */
interface Keys {
  readonly key: string;
  /** The key's UTF-8, with a character for each byte. */
  readonly bytes: string;
  readonly before: Keys | null;
}

/** An object or array that the text has begun and not ended. */
interface Open {
  readonly isObject: boolean;
  /** True where the next string is a key. */
  readonly expectsKey: boolean;
  readonly keys: Keys | null;
  readonly outer: Open | null;
}

/** The position of a JSON text within its objects and keys. */
export interface KeyState {
  readonly open: Open | null;
  readonly within: 'key' | 'string' | 'structure';
  readonly isEscaped: boolean;
  /** The bytes of the current key as the text writes it, with a character for each byte. */
  readonly written: string;
  /** True if the last token ended a key that its object already had. */
  readonly repeats: boolean;
}

export const NO_KEYS: KeyState = { open: null, within: 'structure', isEscaped: false, written: '', repeats: false };

/** The state after one more token. */
export function keysAfter(state: KeyState, bytes: Uint8Array): KeyState {
  let { open, within, isEscaped, written } = state;
  let repeats = false;
  for (const byte of bytes) {
    if (within !== 'structure') {
      if (byte === QUOTE && !isEscaped) {
        if (within === 'key' && open) {
          const key = keyOf(written);
          repeats ||= hasKey(open, key);
          const keys = { key, bytes: Buffer.from(key).toString('latin1'), before: open.keys };
          open = { ...open, keys, expectsKey: false };
        }
        [within, written] = ['structure', ''];
        continue;
      }
      if (within === 'key') written += String.fromCharCode(byte);
      isEscaped = byte === BACKSLASH && !isEscaped;
      continue;
    }
    if (byte === QUOTE) within = open?.expectsKey ? 'key' : 'string';
    else if (byte === OBJECT_START) open = { isObject: true, expectsKey: true, keys: null, outer: open };
    else if (byte === ARRAY_START) open = { isObject: false, expectsKey: false, keys: null, outer: open };
    else if (byte === OBJECT_END || byte === ARRAY_END) open = open?.outer ?? null;
    else if (byte === COMMA && open?.isObject) open = { ...open, expectsKey: true };
    else if (byte === COLON && open?.expectsKey) open = { ...open, expectsKey: false };
  }
  return { open, within, isEscaped, written, repeats };
}

/** The fewest quotes in a token that may end a key a second time at this state. */
export function quotesToRepeat({ open, within, written }: KeyState): number {
  if (within === 'string') return 3;
  if (within === 'structure') return 2;
  if (written.includes('\\')) return 1;
  for (let keys = open?.keys; keys; keys = keys.before) if (keys.bytes.startsWith(written)) return 1;
  return 3;
}

function keyOf(written: string): string {
  return JSON.parse(`"${Buffer.from(written, 'latin1').toString()}"`);
}

function hasKey({ keys }: Open, key: string): boolean {
  for (let each = keys; each; each = each.before) if (each.key === key) return true;
  return false;
}

const MAX_QUOTES = 3;
const knownTokens = new WeakMap<Vocabulary, readonly (readonly number[])[]>();

/** The tokens with at least so many quotes. @param quotes 1 to 3 */
export function tokensWithQuotes(vocabulary: Vocabulary, quotes: number): readonly number[] {
  const known = knownTokens.get(vocabulary);
  if (known) return known[quotes] ?? [];
  const { bytes, offsets, size } = vocabulary;
  const tokens: number[][] = Array.from({ length: MAX_QUOTES + 1 }, () => []);
  for (let token = 0; token < size; token += 1) {
    let count = 0;
    for (const byte of bytes.subarray(offsets[token], offsets[token + 1])) if (byte === QUOTE) count += 1;
    for (let least = Math.min(count, MAX_QUOTES); least > 0; least -= 1) tokens[least]?.push(token);
  }
  knownTokens.set(vocabulary, tokens);
  return tokens[quotes] ?? [];
}
