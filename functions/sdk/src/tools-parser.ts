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

/** Index after the fence that closes a block whose text begins at `start`; −1 while the block is open. */
function closingFence(text: string, start: number): number {
  // In an empty block, the line break before `start` also begins the closing fence.
  const at = text.indexOf(FENCE, start - 1);
  return at < 0 ? -1 : at + FENCE.length;
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
  readonly #first: string;
  readonly #parameters: ReadonlyMap<string, readonly string[]>;
  readonly #opening: RegExp;
  /** The text up to `#from`, without its calls. */
  #plain = '';
  #from = 0;

  constructor(tools: readonly Tool[], format: ToolFormat) {
    this.#format = format;
    this.#first = tools[0]?.name ?? '';
    this.#parameters = new Map(tools.map((tool) => [tool.name, parameterNames(tool)]));
    const names = tools.map(({ name }) => name.replaceAll('-', '\\-')).join('|');
    this.#opening = {
      hermes: /<tool_call>\s*(?=\{)/g,
      json: /^[ \t]*(?:<\|python_tag\|>)?(?=\{)/gm,
      // Without tools, no text is a call.
      signature: new RegExp(names === '' ? '(?!)' : `(?<![\\w.])(?:${names})\\s*(?=\\()`, 'g'),
      code: /```(?:js|javascript)[ \t]*\n/g,
    }[format];
  }

  /** Takes the next piece of the text. @returns the calls that the piece closes */
  push(piece: string): ParsedCall[] {
    this.text += piece;
    const calls: ParsedCall[] = [];
    for (;;) {
      this.#opening.lastIndex = this.#from;
      const found = this.#opening.exec(this.text);
      if (!found) return calls;
      const start = found.index + found[0].length;
      const end = this.#format === 'code' ? closingFence(this.text, start) : closingBracket(this.text, start);
      if (end < 0) return calls;
      const source = this.text.slice(found.index, end);
      const call = this.#read(found[0], this.text.slice(start, end), source, end);
      if (call) {
        this.#plain += this.text.slice(this.#from, found.index);
        calls.push(call);
      } else this.#plain += this.text.slice(this.#from, end);
      this.#from = end;
    }
  }

  /** The text without its calls and their frames. */
  get plain(): string {
    const plain = this.#plain + this.text.slice(this.#from);
    return this.#format === 'hermes' ? plain.replaceAll(CLOSE, '').replace(OPEN, '').trim() : plain.trim();
  }

  /** The call between `opening` and `end`; undefined when that text is not a call. */
  #read(opening: string, body: string, source: string, end: number): ParsedCall | undefined {
    if (this.#format === 'code') {
      return { name: this.#first, arguments: { code: body.slice(0, -FENCE.length) }, source, end };
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
