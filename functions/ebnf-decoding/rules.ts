import { InferletError } from '@pie/inferlet';

/** A rule in the form of the parser nearley. A symbol is a character, a character class as a regular expression, or the name of a rule. */
interface Rule {
  readonly name: string;
  readonly symbols: readonly (string | RegExp | { readonly literal: string })[];
}

type Symbols = Rule['symbols'];

/**
 * Parses a grammar in EBNF that starts at `root`: `name ::= …` with "literals", [classes], groups, `|`, `*`, `+`, `?` and `#` comments.
 * @throws `invalid-argument`, with the text at which parsing failed
 */
export function rulesOf(grammar: string): { ParserRules: Rule[]; ParserStart: string } {
  const reader = new Reader(grammar);
  const rules = reader.rules();
  const names = new Set(rules.map(({ name }) => name));
  for (const { symbols } of rules) {
    for (const symbol of symbols) {
      if (typeof symbol === 'string' && !names.has(symbol)) {
        throw new InferletError('invalid-argument', `The grammar names "${symbol}", which it does not define.`);
      }
    }
  }
  if (!names.has('root')) throw new InferletError('invalid-argument', 'The grammar has no rule "root".');
  return { ParserRules: rules, ParserStart: 'root' };
}

/** The next token, after spaces and comments. */
const TOKEN = /\s*(?:#[^\n]*\s*)*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|::=|[A-Za-z][A-Za-z0-9_-]*|[()|*+?])/y;

class Reader {
  readonly #tokens: string[] = [];
  readonly #rules: Rule[] = [];
  #next = 0;

  constructor(text: string) {
    TOKEN.lastIndex = 0;
    let at = 0;
    for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
      this.#tokens.push(match[1] ?? '');
      at = TOKEN.lastIndex;
    }
    const rest = text
      .slice(at)
      .replace(/#[^\n]*/g, '')
      .trim();
    if (rest !== '') throw new InferletError('invalid-argument', `The grammar cannot be read at: ${rest.slice(0, 40)}`);
  }

  rules(): Rule[] {
    while (this.#next < this.#tokens.length) {
      const name = this.#take();
      if (this.#take() !== '::=') throw new InferletError('invalid-argument', `"::=" is missing after "${name}".`);
      this.#alternatives(name);
    }
    return this.#rules;
  }

  #alternatives(name: string): void {
    do this.#rules.push({ name, symbols: this.#sequence() });
    while (this.#accept('|'));
  }

  #sequence(): Symbols {
    const symbols: Symbols[number][] = [];
    for (;;) {
      const token = this.#tokens[this.#next];
      // A token before `::=` is the name of the next rule.
      if (token === undefined || token === '|' || token === ')' || this.#tokens[this.#next + 1] === '::=')
        return symbols;
      symbols.push(...this.#repeated(this.#item()));
    }
  }

  #item(): Symbols {
    const token = this.#take();
    try {
      if (token.startsWith('"')) return Array.from(JSON.parse(token) as string, (literal) => ({ literal }));
      if (token.startsWith('[')) return [new RegExp(token, 'u')];
    } catch (cause) {
      throw new InferletError(
        'invalid-argument',
        `The grammar cannot be read at ${token}: ${(cause as Error).message}.`,
      );
    }
    if (token !== '(') return [token];
    const name = this.#freshName();
    this.#alternatives(name);
    if (this.#take() !== ')') throw new InferletError('invalid-argument', 'A group is not closed.');
    return [name];
  }

  /**
   * Returns `item`, or a new rule when `*`, `+` or `?` follows it. The rule has two alternatives: nothing or
   * `rule item` for `*`, `item` or `rule item` for `+`, nothing or `item` for `?`.
   */
  #repeated(item: Symbols): Symbols {
    const sign = this.#tokens[this.#next] ?? '';
    if (!'*+?'.includes(sign) || sign === '') return item;
    this.#next++;
    const name = this.#freshName();
    this.#rules.push({ name, symbols: sign === '+' ? item : [] });
    this.#rules.push({ name, symbols: sign === '?' ? item : [name, ...item] });
    return [name];
  }

  /** A new name for a rule. Names in the grammar's text have no parentheses, and `#next` is different at each call. */
  #freshName = (): string => `(${this.#rules.length}.${this.#next})`;

  #take(): string {
    const token = this.#tokens[this.#next++];
    if (token === undefined) throw new InferletError('invalid-argument', 'The grammar ends too early.');
    return token;
  }

  #accept(token: string): boolean {
    if (this.#tokens[this.#next] !== token) return false;
    this.#next++;
    return true;
  }
}
