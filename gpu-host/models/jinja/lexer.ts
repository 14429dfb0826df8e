import { TemplateError } from './errors.ts';
import { isSpace, trimEnd, trimStart } from './text.ts';

/** A token of a template. `data` is the text outside of tags; `operator` includes brackets and punctuation. */
export interface Token {
  readonly type:
    | 'data'
    | 'blockBegin'
    | 'blockEnd'
    | 'variableBegin'
    | 'variableEnd'
    | 'name'
    | 'string'
    | 'integer'
    | 'float'
    | 'operator'
    | 'end';
  readonly value: string;
  readonly line: number;
}

/** Longest first. */
const OPERATORS = '// ** == != >= <= + - / * % ~ [ ] ( ) { } > < = . : | , ;'.split(' ');
const CLOSERS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };
const INTEGER = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/y;
const FLOAT = /\d+(?:_\d+)*(?:(?:\.\d+(?:_\d+)*)?[eE][+-]?\d+(?:_\d+)*|\.\d+(?:_\d+)*)/y;
const NAME = /[\p{L}\p{M}\p{N}_]+/uy;
const RAW_BEGIN = /\{%([-+]?)\s*raw\s*(-?)%\}/y;
const RAW_END = /\{%([-+]?)\s*endraw\s*([-+]?)%\}/g;

/**
 * The tokens of a template under `trim_blocks` and `lstrip_blocks`: the first newline after a block or a comment, and the white space between the
 * beginning of a line and a block or a comment, belong to the tag. As in Jinja2, one newline at the template's end is dropped, and every kind of
 * newline becomes `\n`.
 *
 * @throws TemplateError for text that is no token, and for tags, brackets and strings without an end
 */
export function tokenize(template: string): Token[] {
  return new Lexer(template).tokens();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  /** Lines up to `#counted`. */
  #line = 1;
  #counted = 0;
  /** Whether the text at `#at` begins a line. */
  #lineStarts = true;

  constructor(template: string) {
    this.#source = template.replace(/\r\n?/g, '\n').replace(/\n$/, '');
  }

  tokens(): Token[] {
    while (this.#at < this.#source.length) this.#root();
    this.#push('end', 'end of the template');
    return this.#tokens;
  }

  /** Text up to the next tag, and this tag. */
  #root(): void {
    const source = this.#source;
    let begin = source.indexOf('{', this.#at);
    while (begin !== -1 && !'%{#'.includes(source[begin + 1] ?? ' ')) begin = source.indexOf('{', begin + 1);
    if (begin === -1) {
      this.#push('data', source.slice(this.#at));
      this.#at = source.length;
      return;
    }
    const kind = source[begin + 1];
    RAW_BEGIN.lastIndex = begin;
    const raw = kind === '%' ? RAW_BEGIN.exec(source) : null;
    const sign = raw?.[1] ?? source[begin + 2] ?? '';
    this.#data(source.slice(this.#at, begin), sign, kind !== '{');
    this.#at = begin;
    if (raw !== null) {
      this.#at += raw[0].length;
      if (raw[2] === '-') this.#skipSpace();
      this.#lineStarts = source[this.#at - 1] === '\n';
      this.#raw();
      return;
    }
    this.#at += sign === '-' || sign === '+' ? 3 : 2;
    if (kind === '#') this.#comment();
    else this.#tag(kind === '%' ? 'block' : 'variable');
    this.#lineStarts = source[this.#at - 1] === '\n';
  }

  /** @param sign the sign of the tag after the text */
  #data(text: string, sign: string, isBlock: boolean): void {
    let kept = text;
    if (sign === '-') kept = trimEnd(text);
    else if (sign !== '+' && isBlock) {
      const lineStart = text.lastIndexOf('\n') + 1;
      if ((lineStart > 0 || this.#lineStarts) && trimEnd(text.slice(lineStart)) === '') kept = text.slice(0, lineStart);
    }
    if (kept !== '') this.#push('data', kept);
  }

  #comment(): void {
    const end = this.#source.indexOf('#}', this.#at);
    if (end === -1) throw this.#error('a comment without its end, "#}"');
    const sign = end > this.#at ? this.#source[end - 1] : '';
    this.#at = end + 2;
    this.#afterBlock(sign);
  }

  #raw(): void {
    RAW_END.lastIndex = this.#at;
    const end = RAW_END.exec(this.#source);
    if (end === null) throw this.#error('a raw block without its end, "{% endraw %}"');
    this.#data(this.#source.slice(this.#at, end.index), end[1] ?? '', true);
    this.#at = end.index + end[0].length;
    this.#afterBlock(end[2]);
    this.#lineStarts = this.#source[this.#at - 1] === '\n';
  }

  /** @param sign the sign before the end of the block */
  #afterBlock(sign: string | undefined): void {
    if (sign === '-') this.#skipSpace();
    else if (sign !== '+' && this.#source[this.#at] === '\n') this.#at++;
  }

  #tag(kind: 'block' | 'variable'): void {
    const begin = this.#at;
    this.#push(`${kind}Begin`, kind === 'block' ? '{%' : '{{');
    const closer = kind === 'block' ? '%}' : '}}';
    const signs = kind === 'block' ? ['-', '+', ''] : ['-', ''];
    const brackets: string[] = [];
    while (this.#at < this.#source.length) {
      const sign = signs.find((each) => this.#source.startsWith(each + closer, this.#at));
      if (sign !== undefined && brackets.length === 0) {
        this.#push(`${kind}End`, closer);
        this.#at += sign.length + closer.length;
        if (kind === 'block') this.#afterBlock(sign);
        else if (sign === '-') this.#skipSpace();
        return;
      }
      if (isSpace(this.#source.charCodeAt(this.#at))) this.#at++;
      else this.#insideTag(brackets);
    }
    throw this.#error(`a tag without its end, "${closer}"`, begin);
  }

  #insideTag(brackets: string[]): void {
    const source = this.#source;
    const char = source[this.#at] ?? '';
    if (char === '"' || char === "'") {
      this.#string(char);
      return;
    }
    // After a dot, digits are an index: `x.0.1`.
    const float = source[this.#at - 1] === '.' ? null : this.#match(FLOAT);
    const integer = float === null ? this.#match(INTEGER) : null;
    const name = float === null && integer === null ? this.#match(NAME) : null;
    const word = float ?? integer ?? name;
    if (word !== null) {
      this.#push(float !== null ? 'float' : integer !== null ? 'integer' : 'name', word);
      return;
    }
    const operator = OPERATORS.find((each) => source.startsWith(each, this.#at));
    if (operator === undefined) throw this.#error(`unexpected ${JSON.stringify(char)}`);
    const bracket = CLOSERS[operator];
    if (bracket !== undefined) brackets.push(bracket);
    else if (operator === ')' || operator === ']' || operator === '}') {
      const expected = brackets.pop();
      if (expected !== operator) {
        throw this.#error(`unexpected "${operator}"${expected === undefined ? '' : `, expected "${expected}"`}`);
      }
    }
    this.#push('operator', operator);
    this.#at += operator.length;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const text = pattern.exec(this.#source)?.[0] ?? null;
    if (text !== null) this.#at += text.length;
    return text;
  }

  #string(quote: string): void {
    const begin = this.#at;
    let end = begin + 1;
    while (end < this.#source.length && this.#source[end] !== quote) end += this.#source[end] === '\\' ? 2 : 1;
    if (end >= this.#source.length) throw this.#error(`a string without its end, ${quote}`, begin);
    this.#push('string', unescaped(this.#source.slice(begin + 1, end)));
    this.#at = end + 1;
  }

  #skipSpace(): void {
    this.#at = this.#source.length - trimStart(this.#source.slice(this.#at)).length;
  }

  #push(type: Token['type'], value: string): void {
    this.#tokens.push({ type, value, line: this.#lineOf(this.#at) });
  }

  #lineOf(at: number): number {
    for (; this.#counted < at; this.#counted++) if (this.#source[this.#counted] === '\n') this.#line++;
    return this.#line;
  }

  #error(message: string, at = this.#at): TemplateError {
    return new TemplateError(message, this.#source.slice(0, at).split('\n').length);
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  '\\': '\\',
  "'": "'",
  '"': '"',
  '\n': '',
};

/** The escapes of Python's string literals, without names of characters. An unknown escape keeps its backslash. */
function unescaped(text: string): string {
  if (!text.includes('\\')) return text;
  return text.replace(
    /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U(0010[\da-fA-F]{4}|000[\da-fA-F]{5})|([0-7]{1,3})|([\s\S]))/g,
    (written, x?: string, u?: string, long?: string, octal?: string, char?: string) => {
      const hex = x ?? u ?? long;
      if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
      if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
      return ESCAPES[char ?? ''] ?? written;
    },
  );
}
