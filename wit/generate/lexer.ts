/** One word of a WIT file, with the documentation comment before it. */
export interface Token {
  readonly text: string;
  readonly kind: 'name' | 'version' | 'sign' | 'end';
  readonly docs: string;
  readonly line: number;
  readonly column: number;
}

/** A fault in a WIT file, with its position. */
export class WitError extends Error {
  constructor(file: string, line: number, column: number, what: string) {
    super(`${file}:${line}:${column}: ${what}`);
    this.name = 'WitError';
  }
}

const PATTERN =
  /(?<docs>\/\/\/[^\n]*)|(?<comment>\/\/[^\n]*|\/\*[\s\S]*?\*\/)|(?<space>\s+)|(?<version>\d+\.\d+\.\d+(?:[-+][\w.+-]+)?)|(?<name>%?[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*)|(?<sign>->|[{}()<>:;,=.@/_*])/y;

/** The words of a WIT text, and after them a token of the kind `end`. Throws WitError at a character that begins no word. */
export function tokenize(file: string, text: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let line = 1;
  let lineStart = 0;
  let docs: string[] = [];
  const push = (kind: Token['kind'], word: string, column: number) => {
    tokens.push({ kind, text: word, docs: docs.join('\n'), line, column });
    docs = [];
  };
  while (at < text.length) {
    PATTERN.lastIndex = at;
    const match = PATTERN.exec(text);
    const column = at - lineStart + 1;
    if (!match) throw new WitError(file, line, column, `unexpected character '${text[at]}'`);
    const { docs: doc, version, name, sign } = match.groups ?? {};
    if (doc !== undefined) docs.push(doc.slice(3).trim());
    else if (version !== undefined) push('version', version, column);
    else if (name !== undefined) push('name', name.replace(/^%/, ''), column);
    else if (sign !== undefined) push('sign', sign, column);
    at += match[0].length;
    for (let i = match[0].indexOf('\n'); i >= 0; i = match[0].indexOf('\n', i + 1)) {
      line += 1;
      lineStart = at - match[0].length + i + 1;
    }
  }
  push('end', '', text.length - lineStart + 1);
  return tokens;
}
