import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { checkCount, describe } from '../errors.ts';
import { parameterNames, type Tool, type ToolContext } from './tools.ts';

/**
 * The format of a model's calls. `hermes`: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes, Qwen and other ChatML models);
 * `json`: an object with `name` and `parameters` or `arguments` on a line of its own (Llama 3); `signature`: `name(city="Rome")` anywhere
 * in a text; `code`: a fenced block of JavaScript, which is a call of the first tool with `{code}`.
 */
export type ToolFormat = 'hermes' | 'json' | 'signature' | 'code';

/** A call found in a text. */
export interface ParsedCall {
  readonly name: string;
  readonly arguments: unknown;
  /** The call as the model wrote it. */
  readonly source: string;
  /** Index of the call's end in the text. */
  readonly end: number;
  /** Set when the call is malformed: the reason. */
  readonly fault?: string;
}

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const FENCE = '\n```';

/**
 * Returns a search for the end of the code block whose text follows the line break at `start`. The whole text grows from call to call. The
 * search returns the index after the closing fence, or −1 while the block is open.
 */
function closingFence(start: number): (text: string) => number {
  // The search begins with this line break: in an empty block, it is also the first character of the closing fence.
  let from = start;
  return (text) => {
    const at = text.indexOf(FENCE, from);
    // The text may end in a part of the fence.
    from = Math.max(from, text.length - FENCE.length + 1);
    return at < 0 ? -1 : at + FENCE.length;
  };
}

/** The character after the opening of a call. No opening contains it. */
const MARKS: Readonly<Record<ToolFormat, string>> = { hermes: '{', json: '{', signature: '(', code: '\n' };

/** A text that may be a call. */
interface Candidate {
  readonly opening: string;
  /** Index after the opening. */
  readonly start: number;
  /** Returns the index after the end of the call, or −1 while the call is open. */
  readonly close: (text: string) => number;
}

/**
 * Finds calls in a growing text. Returns a call as soon as its closing character arrives, regardless of the text after it.
 *
 * @example
 * const parser = new ToolCallParser(tools, 'signature');
 * for await (const text of generation) for (const call of parser.push(text)) fire(call);
 */
export class ToolCallParser {
  /** The whole text so far. */
  text = '';
  readonly #format: ToolFormat;
  readonly #firstToolName: string;
  readonly #parameters: ReadonlyMap<string, readonly string[]>;
  readonly #opening: RegExp;
  /** The text up to `#from`, without its calls. */
  #plain = '';
  #from = 0;
  /** Index after the last mark that was tried: the next opening begins here or later. */
  #searched = 0;
  #candidate: Candidate | undefined;

  constructor(tools: readonly Tool[], format: ToolFormat) {
    this.#format = format;
    this.#firstToolName = tools[0]?.name ?? '';
    this.#parameters = new Map(tools.map((tool) => [tool.name, parameterNames(tool)]));
    const names = tools.map(({ name }) => name.replaceAll('-', '\\-')).join('|');
    this.#opening = {
      hermes: /<tool_call>\s*(?=\{)/g,
      json: /^[ \t]*(?:<\|python_tag\|>)?(?=\{)/gm,
      // Without tools, no text is a call.
      signature: new RegExp(names === '' ? '(?!)' : `(?<![\\w.])(?:${names})\\s*(?=\\()`, 'g'),
      code: /```(?:js|javascript)[ \t]*(?=\n)/g,
    }[format];
  }

  /** Takes the next piece of the text. @returns the calls that the piece closes */
  push(piece: string): ParsedCall[] {
    this.text += piece;
    const calls: ParsedCall[] = [];
    for (;;) {
      this.#candidate ??= this.#next(piece);
      if (!this.#candidate) return calls;
      const { opening, start, close } = this.#candidate;
      const end = close(this.text);
      if (end < 0) return calls;
      const at = start - opening.length;
      const call = this.#read(opening, this.text.slice(start, end), this.text.slice(at, end), end);
      this.#plain += this.text.slice(this.#from, call ? at : end);
      if (call) calls.push(call);
      this.#from = this.#searched = end;
      this.#candidate = undefined;
    }
  }

  /** The next opening, if `piece`, the end of the text, has a mark: an opening is complete only once its mark has arrived. */
  #next(piece: string): Candidate | undefined {
    const mark = piece.lastIndexOf(MARKS[this.#format]);
    if (mark < 0) return undefined;
    this.#opening.lastIndex = this.#searched;
    const found = this.#opening.exec(this.text);
    if (!found) {
      this.#searched = Math.max(this.#searched, this.text.length - piece.length + mark + 1);
      return undefined;
    }
    const [opening] = found;
    const start = found.index + opening.length;
    return { opening, start, close: this.#format === 'code' ? closingFence(start) : closingBracket(start) };
  }

  /** The text without its calls and their frames. */
  get plain(): string {
    // Calls are cut out up to their last brace, so their closing tags remain. At most one call is unfinished; its opening tag remains.
    const plain = this.#plain + this.text.slice(this.#from);
    return this.#format === 'hermes' ? plain.replaceAll(CLOSE, '').replace(OPEN, '').trim() : plain.trim();
  }

  /** The call with this opening and body; undefined when the text is not a call. */
  #read(opening: string, body: string, source: string, end: number): ParsedCall | undefined {
    if (this.#format === 'code') {
      return { name: this.#firstToolName, arguments: { code: body.slice(1, -FENCE.length) }, source, end };
    }
    try {
      if (this.#format === 'signature') {
        const name = opening.trim();
        const args = parseArguments(body.slice(1, -1), this.#parameters.get(name) ?? []);
        return { name, arguments: args, source, end };
      }
      const value = parseLiteral(body) as Record<string, unknown>;
      const args = value.arguments ?? value.parameters ?? {};
      if (typeof value.name !== 'string') {
        if (this.#format === 'json') return undefined;
        throw new SyntaxError('it has no "name"');
      }
      return { name: value.name, arguments: typeof args === 'string' ? parseLiteral(args) : args, source, end };
    } catch (error) {
      if (this.#format === 'json') return undefined;
      const fault = error instanceof Error ? error.message : String(error);
      const name = this.#format === 'signature' ? opening.trim() : (/"name"\s*:\s*"([^"]*)"/.exec(body)?.[1] ?? '');
      return { name, arguments: {}, source, end, fault };
    }
  }
}

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

/** A call and its outcome. */
export interface ToolOutcome {
  readonly name: string;
  readonly arguments: unknown;
  /** The call as the model wrote it. */
  readonly source: string;
  readonly ok: boolean;
  /** Text for the model: the result or the error. */
  readonly content: string;
}

/** Options of a {@link ToolRunner}. */
export interface ToolRunnerOptions {
  /** The format of the model's calls; see {@link ToolFormat}. */
  readonly format?: ToolFormat;
  /** Most concurrent calls; 8 by default. */
  readonly concurrency?: number;
  /** Most calls of one text; 32 by default. Further calls get an error as their outcome. */
  readonly maxCalls?: number;
  /** When aborted, the runner stops waiting for running calls and does not start queued ones. */
  readonly signal?: AbortSignalLike;
}

/**
 * Runs the calls that a model writes, while decoding continues. Each call starts as soon as its text is complete, and several run at once (compare
 * LLMCompiler, Kim et al., ICML 2024, and Pie, SOSP '25, section 7.3). A tool's exception is an outcome too, so that the model can react.
 *
 * @example
 * const runner = new ToolRunner(tools);
 * for await (const text of ctx.generate()) runner.push(text);
 * for (const { name, content } of await runner.outcomes()) log(`${name}: ${content}`);
 */
export class ToolRunner {
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #parser: ToolCallParser;
  readonly #concurrency: number;
  readonly #maxCalls: number;
  readonly #context: ToolContext;
  readonly #outcomes: Promise<ToolOutcome>[] = [];
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(tools: readonly Tool[], options: ToolRunnerOptions = {}) {
    const { format = 'signature', concurrency = 8, maxCalls = 32, signal } = options;
    checkCount('concurrency', concurrency);
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#parser = new ToolCallParser(tools, format);
    this.#concurrency = concurrency;
    this.#maxCalls = maxCalls;
    this.#context = { signal };
  }

  /** Takes the next piece of a text and starts the calls that it closes. @returns these calls */
  push(text: string): ParsedCall[] {
    const calls = this.#parser.push(text);
    for (const call of calls) this.#outcomes.push(this.#run(call, this.#outcomes.length));
    return calls;
  }

  /** Number of calls so far. */
  get calls(): number {
    return this.#outcomes.length;
  }

  /** The whole text so far. */
  get text(): string {
    return this.#parser.text;
  }

  /** The text without its calls. */
  get plain(): string {
    return this.#parser.plain;
  }

  /** Waits for all calls so far. @returns their outcomes, in the order of the calls in the text */
  outcomes(): Promise<ToolOutcome[]> {
    return Promise.all(this.#outcomes);
  }

  async #run({ name, arguments: args, source, fault }: ParsedCall, index: number): Promise<ToolOutcome> {
    const outcome = (ok: boolean, content: string): ToolOutcome => ({ name, arguments: args, source, ok, content });
    const tool = this.#tools.get(name);
    if (fault !== undefined) return outcome(false, `Error: the call cannot be read: ${fault}.`);
    if (!tool) return outcome(false, `Error: there is no tool "${name}", only ${[...this.#tools.keys()].join(', ')}.`);
    if (index >= this.#maxCalls)
      return outcome(false, `Error: not called: one text may make ${this.#maxCalls} calls at most.`);
    await this.#enter();
    try {
      // The signal may have been aborted while this call waited for its turn.
      throwIfAborted(this.#context.signal);
      return outcome(true, show(await abortable(tool.call(args, this.#context), this.#context.signal)));
    } catch (error) {
      return outcome(false, `Error: ${describe(error)}`);
    } finally {
      this.#running--;
      const wakeNext = this.#waiting.shift();
      wakeNext?.();
    }
  }

  async #enter(): Promise<void> {
    while (this.#running >= this.#concurrency) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
  }
}

/** A result as text for the model. */
const show = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'done'));
