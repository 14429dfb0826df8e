import type { MatchStatus } from '#wit/generated/host.ts';
import type { Forced } from '../messages.ts';
import { type Check, invalid } from '../translate/expression.ts';
import type { Vocabulary } from '../vocabulary.ts';
import type { Place, Places } from './places.ts';
import { forcedAt, NOT_FORCED, type TokenTree } from './token-tree.ts';

/** A compiled grammar, with a model's tokens. */
export interface Compiled {
  readonly places: Places;
  readonly tree: TokenTree;
  readonly vocabulary: Vocabulary;
  /** Checks the schema's rules that the grammar cannot express. A text may end only if it passes this check. */
  readonly check?: Check | undefined;
  /** True if an object must not repeat a key. */
  readonly isJson?: boolean;
}

/** Matches a text against a compiled grammar, token by token. */
export class TokenMatcher {
  readonly #compiled: Compiled;
  /** The start, then the place after each accepted token; null after an end. */
  readonly #path: (Place | null)[];
  /** For grammars of JSON, the keys at each place of `#path`. Entries beyond `#path` are stale. */
  readonly #keys: KeyState[] = [NO_KEYS];
  /** The accepted tokens, recorded only for grammars with a check. Entries beyond the tokens of `#path` are stale. */
  readonly #tokens: number[] = [];
  /** The fault found by the last check, and the length of `#path` at that time. `mask`, `status` and an end token can so share one check. */
  #lastCheck: { readonly places: number; readonly fault: string | null } | null = null;

  constructor(compiled: Compiled) {
    this.#compiled = compiled;
    this.#path = [compiled.places.start];
  }

  /** Accepts all of `tokens`, or accepts none and returns false when a token does not fit. */
  accept(tokens: Uint32Array): boolean {
    const { size } = this.#compiled.vocabulary;
    const outside = tokens.find((token) => token >= size);
    if (outside !== undefined) {
      throw invalid(`token ${outside} is outside the vocabulary of ${size}; pass ids of the grammar's model`);
    }
    const length = this.#path.length;
    let isAccepted = false;
    try {
      isAccepted = tokens.every((token) => this.#take(token));
    } finally {
      // Undo a refused call, and a call that throws after some tokens.
      if (!isAccepted) this.#cut(length);
    }
    return isAccepted;
  }

  /** Takes the last `tokens` tokens back. */
  rollback(tokens: number): undefined {
    const acceptedCount = this.#path.length - 1;
    if (tokens > acceptedCount) throw invalid(`${tokens} tokens cannot be taken back: ${acceptedCount} were accepted`);
    this.#cut(this.#path.length - tokens);
  }

  /**
   * Tokens that may come next: bit `t % 32` of word `t / 32` for token `t`. Includes the end-of-sequence tokens when the text may end or has
   * ended.
   */
  mask(): Uint32Array<ArrayBuffer> {
    const { size, eos } = this.#compiled.vocabulary;
    const place = this.#place;
    const mask = place === null ? new Uint32Array(Math.ceil(size / 32)) : this.#maskWithoutRepeats(place);
    if (place === null || (place.mayEnd && this.#mayEnd(place))) {
      for (const token of eos) mask[token >>> 5] = (mask[token >>> 5] ?? 0) | (1 << (token & 31));
    } else if (mask.every(isZero)) {
      throw invalid(
        "no token of the model goes on here: its vocabulary lacks the grammar's next bytes; take tokens back",
      );
    }
    return mask;
  }

  /** The mask, and the masks after each of `guesses`. Masks after a guess that does not fit allow every token. */
  masks(guesses: Uint32Array): Uint32Array<ArrayBuffer> {
    const { size } = this.#compiled.vocabulary;
    const words = Math.ceil(size / 32);
    const masks = new Uint32Array((guesses.length + 1) * words).fill(0xffff_ffff);
    const length = this.#path.length;
    try {
      masks.set(this.mask());
      for (const [i, guess] of guesses.entries()) {
        if (guess >= size || !this.#take(guess)) break;
        if (this.#isStuck()) break;
        masks.set(this.mask(), (i + 1) * words);
      }
    } finally {
      this.#cut(length);
    }
    return masks;
  }

  /** The text that must come next, cut to whole characters. It is empty where the text has a choice or may end, and within a character. */
  forced(): Forced {
    const place = this.#place;
    if (place === null) return NOT_FORCED;
    if (place.forced) return place.forced;
    const { tree, places } = this.#compiled;
    const forced = forcedAt(place, places, tree);
    places.keepForced(place, forced);
    return forced;
  }

  status(): MatchStatus {
    const place = this.#place;
    if (place === null) return { mayEnd: true, mustEnd: true };
    const mayEnd = place.mayEnd && this.#mayEnd(place);
    return { mayEnd, mustEnd: mayEnd && this.#continuationMask(place).every(isZero) };
  }

  #cut(length: number): void {
    this.#path.length = length;
    this.#lastCheck = null;
  }

  get #place(): Place | null {
    return this.#path.at(-1) ?? null;
  }

  #take(token: number): boolean {
    const nextPlace = this.#placeAfter(token);
    if (nextPlace === undefined) return false;
    if (this.#compiled.isJson) {
      const keys = this.#keysAfter(token);
      if (keys.repeats && !this.#isAllowed(token)) return false;
      this.#keys[this.#path.length] = keys;
    }
    if (this.#compiled.check) this.#tokens[this.#path.length - 1] = token;
    this.#path.push(nextPlace);
    this.#lastCheck = null;
    return true;
  }

  /** The place after a token; null at the end of the text; undefined when the token does not fit. */
  #placeAfter(token: number): Place | null | undefined {
    const { places, vocabulary } = this.#compiled;
    let place = this.#place;
    if (place === null) return undefined;
    if (vocabulary.eos.includes(token)) return place.mayEnd && this.#fault() === null ? null : undefined;
    const [from, to] = [vocabulary.offsets[token] ?? 0, vocabulary.offsets[token + 1] ?? 0];
    if (from === to) return undefined;
    for (const byte of vocabulary.bytes.subarray(from, to)) {
      place = places.after(place, byte);
      if (place === null) return undefined;
    }
    return place;
  }

  /** True when the text must end here but cannot: it fails the check, or the model has no end-of-sequence token. */
  #isStuck(): boolean {
    const place = this.#place;
    if (place === null || !place.mayEnd || !this.#continuationMask(place).every(isZero)) return false;
    return this.#compiled.vocabulary.eos.length === 0 || this.#fault() !== null;
  }

  /** True if the text passes the check of what the grammar leaves open. @throws GrammarError for a text that fails and cannot go on */
  #mayEnd(place: Place): boolean {
    const fault = this.#fault();
    if (fault !== null && this.#continuationMask(place).every(isZero)) throw invalid(fault);
    return fault === null;
  }

  /** Checks the text so far as a whole text of the grammar. Returns its fault, or null. */
  #fault(): string | null {
    const { check, vocabulary } = this.#compiled;
    if (!check) return null;
    const placeCount = this.#path.length;
    if (this.#lastCheck?.places === placeCount) return this.#lastCheck.fault;
    const { bytes, offsets } = vocabulary;
    const tokens = this.#tokens.slice(0, placeCount - 1);
    const pieces = tokens.map((token) => bytes.subarray(offsets[token], offsets[token + 1]));
    const fault = check.fault(Buffer.concat(pieces).toString());
    this.#lastCheck = { places: placeCount, fault };
    return fault;
  }

  get #currentKeys(): KeyState {
    return this.#keys[this.#path.length - 1] ?? NO_KEYS;
  }

  #keysAfter(token: number): KeyState {
    const { bytes, offsets } = this.#compiled.vocabulary;
    return keysAfter(this.#currentKeys, bytes.subarray(offsets[token], offsets[token + 1]));
  }

  /** True if the mask of the current place has the token. */
  #isAllowed(token: number): boolean {
    const place = this.#place;
    const mask = place && this.#maskWithoutRepeats(place);
    return (((mask?.[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
  }

  /** The tokens that continue from the current place and repeat no key. If each of them does, as with a pattern for one name, all of them. */
  #maskWithoutRepeats(place: Place): Uint32Array<ArrayBuffer> {
    const continuation = this.#continuationMask(place);
    const mask = new Uint32Array(continuation);
    const keys = this.#currentKeys;
    if (!this.#compiled.isJson || keys.open === null) return mask;
    let removed = false;
    for (const token of tokensWithQuotes(this.#compiled.vocabulary, quotesToRepeat(keys))) {
      const [word, bit] = [token >>> 5, 1 << (token & 31)];
      if (((mask[word] ?? 0) & bit) === 0 || !this.#keysAfter(token).repeats) continue;
      mask[word] = (mask[word] ?? 0) & ~bit;
      removed = true;
    }
    return removed && mask.every(isZero) ? new Uint32Array(continuation) : mask;
  }

  /** Mask of the tokens that continue from a place. */
  #continuationMask(place: Place): Uint32Array {
    if (place.mask) return place.mask;
    const { tree, places } = this.#compiled;
    const mask = tree.mask(places, place);
    places.keepMask(place, mask);
    return mask;
  }
}

function isZero(word: number): boolean {
  return word === 0;
}

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
interface KeyState {
  readonly open: Open | null;
  readonly within: 'key' | 'string' | 'structure';
  readonly isEscaped: boolean;
  /** The bytes of the current key as the text writes it, with a character for each byte. */
  readonly written: string;
  /** True if the last token ended a key that its object already had. */
  readonly repeats: boolean;
}

const NO_KEYS: KeyState = { open: null, within: 'structure', isEscaped: false, written: '', repeats: false };

/** The state after one more token. */
function keysAfter(state: KeyState, bytes: Uint8Array): KeyState {
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
function quotesToRepeat({ open, within, written }: KeyState): number {
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
function tokensWithQuotes(vocabulary: Vocabulary, quotes: number): readonly number[] {
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
