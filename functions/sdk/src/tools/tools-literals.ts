/**
 * Parses values as models write them in calls: JSON, and similar literals of Python and JavaScript (`'text'`, `True`, `None`, keys without
 * quotes, a trailing comma). Evaluates nothing.
 */
class Reader {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get isAtEnd(): boolean {
    this.space();
    return this.at >= this.#text.length;
  }

  space(): void {
    while (/\s/.test(this.#text[this.at] ?? '')) this.at++;
  }

  /** Takes `token` if it is next. */
  take(token: string): boolean {
    this.space();
    if (!this.#text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }

  match(pattern: RegExp): string | undefined {
    this.space();
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  value(depth = 0): unknown {
    if (depth > MAX_DEPTH) throw new SyntaxError('it is nested too deeply');
    this.space();
    const next = this.#text[this.at];
    if (next === '"' || next === "'") return this.string();
    if (this.take('{')) return this.#members('}', () => this.#member(depth)).reduce(intoObject, {});
    if (this.take('[')) return this.#members(']', () => this.value(depth + 1));
    const number = this.match(NUMBER);
    if (number !== undefined) return Number(number);
    const word = this.match(WORD);
    if (word !== undefined && Object.hasOwn(CONSTANTS, word)) return CONSTANTS[word as keyof typeof CONSTANTS];
    throw new SyntaxError(
      `no value at ${JSON.stringify(this.#text.slice(this.at - (word?.length ?? 0)).slice(0, 20))}`,
    );
  }

  string(): string {
    const quote = this.#text[this.at++];
    let text = '';
    for (;;) {
      const next = this.#text[this.at++];
      if (next === undefined) throw new SyntaxError('a text has no end');
      if (next === quote) return text;
      text += next === '\\' ? this.#escape() : next;
    }
  }

  #escape(): string {
    const escaped = this.#text[this.at++] ?? '';
    if (escaped !== 'u') return ESCAPES[escaped] ?? escaped;
    const digits = /^[0-9a-fA-F]{4}/.exec(this.#text.slice(this.at))?.[0];
    if (digits === undefined) throw new SyntaxError('\\u needs four digits');
    this.at += 4;
    return String.fromCharCode(Number.parseInt(digits, 16));
  }

  #member(depth: number): [string, unknown] {
    this.space();
    const quoted = /["']/.test(this.#text[this.at] ?? '');
    const key = quoted ? this.string() : this.match(WORD);
    if (key === undefined || !this.take(':')) throw new SyntaxError('a member needs a name and a colon');
    return [key, this.value(depth + 1)];
  }

  #members<T>(end: string, read: () => T): T[] {
    const members: T[] = [];
    while (!this.take(end)) {
      if (members.length > 0 && !this.take(',')) throw new SyntaxError(`a "," or "${end}" is missing`);
      if (members.length > 0 && this.take(end)) break;
      members.push(read());
    }
    return members;
  }
}

const MAX_DEPTH = 64;
const NUMBER = /-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/y;
const WORD = /[A-Za-z_$][\w$]*/y;
const KEYWORD = /[A-Za-z_]\w*\s*[=:](?!=)/y;
const CONSTANTS = {
  true: true,
  True: true,
  false: false,
  False: false,
  null: null,
  None: null,
  undefined: null,
} as const;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f' };

function intoObject(object: Record<string, unknown>, [key, value]: [string, unknown]): Record<string, unknown> {
  // An assignment would treat the key `__proto__` specially.
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  return object;
}

/** Parses one value. Throws SyntaxError. */
export function parseLiteral(text: string): unknown {
  const reader = new Reader(text);
  const value = reader.value();
  if (!reader.isAtEnd)
    throw new SyntaxError(`it goes on after its end: ${JSON.stringify(text.slice(reader.at).slice(0, 20))}`);
  return value;
}

/**
 * Parses the text between the parentheses of a call: one object with all arguments, or values by name (`city="Rome"`, `city: "Rome"`) and
 * by position, which get their names from `names`. Throws SyntaxError.
 */
export function parseArguments(text: string, names: readonly string[]): Record<string, unknown> {
  const reader = new Reader(text);
  if (/^\s*\{/.test(text)) {
    const value = reader.value() as Record<string, unknown>;
    if (reader.isAtEnd) return value;
    reader.at = 0;
  }
  const entries: [string, unknown][] = [];
  while (!reader.isAtEnd) {
    if (entries.length > 0 && !reader.take(',')) throw new SyntaxError('a "," between arguments is missing');
    if (reader.isAtEnd) break;
    const keyword = reader.match(KEYWORD);
    const key = keyword?.replace(/\s*[=:]$/, '') ?? names[entries.length];
    if (key === undefined) throw new SyntaxError(`there are more than ${names.length} arguments`);
    entries.push([key, reader.value()]);
  }
  return entries.reduce(intoObject, {});
}

/** Matches the text before a single quote that opens a string, a Python prefix such as `r` included. After other text, the quote is an apostrophe. */
const BEFORE_STRING = /[([{,:=+]\s*[rbfu]{0,2}$/i;
/** Number of characters before the quote that the pattern may see. */
const MAX_LOOKBEHIND = 100;

/**
 * Returns a search for the end of the bracket at `start`, in a text that grows from call to call. The search returns the index after the closing
 * bracket, or −1 while the bracket is open. It ignores brackets in strings.
 */
export function closingBracket(start: number): (text: string) => number {
  let at = start;
  let depth = 0;
  let quote = '';
  return (text) => {
    for (; at < text.length; at++) {
      const character = text[at] as string;
      if (quote !== '') {
        if (character === '\\') at++;
        else if (character === quote) quote = '';
        continue;
      }
      if (
        character === '"' ||
        (character === "'" && BEFORE_STRING.test(text.slice(Math.max(start, at - MAX_LOOKBEHIND), at)))
      )
        quote = character;
      else if ('([{'.includes(character)) depth++;
      else if (')]}'.includes(character) && --depth === 0) return at + 1;
    }
    return -1;
  };
}
