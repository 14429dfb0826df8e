import { parameterNames, type Tool } from './tools.ts';
import { closingBracket, parseArguments, parseLiteral } from './tools-literals.ts';

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
