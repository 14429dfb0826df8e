/** A Lark grammar, or a part of it, that has no counterpart in GBNF. */
export class LarkError extends Error {
  override readonly name = 'LarkError';
}

/**
 * Translates a grammar in Lark's notation, as custom tools define it, to GBNF. Supports rules and terminals, strings (`"a"i` too), ranges, regular
 * expressions without anchors and lookaround, `| ? * + ~n ~n..m ( ) [ ]`, aliases and `%import common.NAME`. The grammar starts at `start`.
 *
 * @throws LarkError for a part that is not supported, with its line
 */
export function gbnfOfLark(source: string): string {
  const rules: string[] = [];
  const imported = new Map<string, string>();
  for (const { text, line } of statementsOf(source)) {
    const fail = (what: string): never => {
      throw new LarkError(`line ${line}: ${what}`);
    };
    if (text.startsWith('%')) {
      const [, name = '', alias = name] = /^%import\s+common\.(\w+)(?:\s*->\s*(\w+))?\s*$/.exec(text) ?? [];
      const terminal = COMMON[name];
      if (terminal === undefined) fail(`"${text}" is not supported. Write the terminals into the grammar.`);
      else imported.set(alias, terminal);
      continue;
    }
    const [head, name] = /^[?!]*(\w+)(?:\.-?\d+)?\s*:/.exec(text) ?? [];
    if (head === undefined || name === undefined) return fail('a rule has the form `name: …`.');
    rules.push(`${gbnfName(name)} ::= ${new Expression(text.slice(head.length), fail).translate()}`);
  }
  if (!rules.some((rule) => rule.startsWith('root ')))
    throw new LarkError('no rule is named start, with which a text begins.');
  for (const [name, terminal] of imported) rules.push(`${gbnfName(name)} ::= ${terminal}`);
  return rules.join('\n');
}

/** The terminals of Lark's own library that grammars of tools import. */
const COMMON: Readonly<Record<string, string>> = {
  LF: '"\\n"',
  CR: '"\\r"',
  NEWLINE: '("\\r"? "\\n")+',
  WS: '[ \\t\\x0c\\r\\n]+',
  WS_INLINE: '[ \\t]+',
  DIGIT: '[0-9]',
  INT: '[0-9]+',
  SIGNED_INT: '[+-]? [0-9]+',
  NUMBER: '[0-9]+ ("." [0-9]*)? ([eE] [+-]? [0-9]+)?',
  SIGNED_NUMBER: '[+-]? [0-9]+ ("." [0-9]*)? ([eE] [+-]? [0-9]+)?',
  LETTER: '[A-Za-z]',
  WORD: '[A-Za-z]+',
  CNAME: '[A-Za-z_] [A-Za-z0-9_]*',
  ESCAPED_STRING: '"\\"" ([^"\\\\\\n] | "\\\\" [^\\n])* "\\""',
};

/** A rule's name in GBNF, which has no underscores at the beginning. Lark's `start` becomes GBNF's `root`. */
function gbnfName(name: string): string {
  return name === 'start' ? 'root' : `r-${name.replaceAll('_', '-u-')}`;
}

/** The statements of a grammar: a line that begins with white space or `|` continues the statement before it. */
function statementsOf(source: string): { readonly text: string; readonly line: number }[] {
  const statements: { text: string; line: number }[] = [];
  for (const [i, line] of source.split(/\r?\n/).entries()) {
    const text = withoutComment(line);
    if (text.trim() === '') continue;
    const last = statements.at(-1);
    if (last && /^\s|^\|/.test(text)) last.text += `\n${text.trimEnd()}`;
    else statements.push({ text: text.trim(), line: i + 1 });
  }
  return statements;
}

/** The line without a comment (`//` or `#`) outside strings and regular expressions. */
function withoutComment(line: string): string {
  const parts = /^(?:"(?:[^"\\]|\\.)*"|\/(?!\/)(?:[^/\\]|\\.)+\/|(?!\/\/)[^#"/]|\/(?!\/))*/.exec(line);
  return parts?.[0] ?? line;
}

const STRING = /"((?:[^"\\\n]|\\.)*)"(i?)/y;
const PATTERN = /\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/y;
const NAME = /[?!]?(\w+)/y;
const COUNT = /~\s*(\d+)(?:\s*\.\.\s*(\d+))?/y;
const ALIAS = /->\s*\w+/y;
const RANGE = /"((?:[^"\\]|\\.))"\s*\.\.\s*"((?:[^"\\]|\\.))"/y;

/** The right side of one rule. */
class Expression {
  readonly #text: string;
  readonly #fail: (what: string) => never;
  #at = 0;

  constructor(text: string, fail: (what: string) => never) {
    this.#text = text;
    this.#fail = fail;
  }

  translate(): string {
    const parts: string[] = [];
    const open: ('(' | '[')[] = [];
    for (;;) {
      this.#take(/\s+/y);
      if (this.#at >= this.#text.length) break;
      const character = this.#text[this.#at];
      if (character === '(' || character === '[') {
        open.push(character);
        parts.push('(');
        this.#at += 1;
      } else if (character === ')' || character === ']') {
        const opening = open.pop();
        if (opening !== (character === ')' ? '(' : '[')) this.#fail(`"${character}" closes no group.`);
        parts.push(character === ']' ? ')?' : ')');
        this.#at += 1;
      } else if (character === '|' || character === '*' || character === '+' || character === '?') {
        parts.push(character);
        this.#at += 1;
      } else parts.push(this.#item());
    }
    if (open.length > 0) this.#fail('a group is not closed.');
    return parts.join(' ');
  }

  #item(): string {
    const range = this.#take(RANGE);
    if (range) return `[${classCharacter(unescaped(range[1] ?? ''))}-${classCharacter(unescaped(range[2] ?? ''))}]`;
    const literal = this.#take(STRING);
    if (literal) return literalOf(unescaped(literal[1] ?? ''), literal[2] === 'i');
    const pattern = this.#take(PATTERN);
    if (pattern) return new Pattern(pattern[1] ?? '', pattern[2] ?? '', this.#fail).translate();
    const count = this.#take(COUNT);
    if (count) return count[2] === undefined ? `{${count[1]}}` : `{${count[1]},${count[2]}}`;
    if (this.#take(ALIAS)) return '';
    const name = this.#take(NAME);
    if (name) return gbnfName(name[1] ?? '');
    return this.#fail(`"${this.#text.slice(this.#at, this.#at + 20)}" is not supported.`);
  }

  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found) this.#at = pattern.lastIndex;
    return found;
  }
}

/** Classes of regular expressions, as members of a class in GBNF. */
const CLASSES: Readonly<Record<string, string>> = { d: '0-9', w: 'A-Za-z0-9_', s: ' \\t\\r\\n\\x0b\\x0c' };

/** A regular expression within a Lark grammar. */
class Pattern {
  readonly #source: string;
  readonly #flags: string;
  readonly #fail: (what: string) => never;
  #at = 0;

  constructor(source: string, flags: string, fail: (what: string) => never) {
    if (/[^isu]/.test(flags)) fail(`the flags "${flags}" of a regular expression are not supported.`);
    this.#source = source;
    this.#flags = flags;
    this.#fail = fail;
  }

  translate(): string {
    const parts: string[] = [];
    let depth = 0;
    while (this.#at < this.#source.length) {
      const character = this.#next();
      if (character === '(') {
        if (this.#source[this.#at] === '?') {
          if (!this.#source.startsWith('?:', this.#at))
            this.#fail(
              `the group "(${this.#source.slice(this.#at, this.#at + 3)}" of a regular expression is not supported.`,
            );
          this.#at += 2;
        }
        depth += 1;
        parts.push('(');
      } else if (character === ')') {
        depth -= 1;
        parts.push(')');
      } else if (character === '|') parts.push('|');
      else if ('*+?'.includes(character)) {
        // Whether a repetition is lazy does not change the texts that match.
        if (this.#source[this.#at] === '?') this.#at += 1;
        parts.push(character);
      } else if (character === '{') parts.push(this.#bounds());
      else if (character === '[') parts.push(this.#class());
      else if (character === '.') parts.push(this.#flags.includes('s') ? '.' : '[^\\n]');
      else if (character === '\\') parts.push(this.#escape());
      else if (character === '^' || character === '$')
        this.#fail(`"${character}" in a regular expression is not supported.`);
      else parts.push(literalOf(character, this.#flags.includes('i')));
    }
    if (depth !== 0) this.#fail('a group of a regular expression is not closed.');
    return `( ${parts.join(' ')} )`;
  }

  #next(): string {
    const character = String.fromCodePoint(this.#source.codePointAt(this.#at) ?? 0);
    this.#at += character.length;
    return character;
  }

  #bounds(): string {
    const end = this.#source.indexOf('}', this.#at);
    const bounds = end < 0 ? '' : this.#source.slice(this.#at, end);
    if (!/^\d+(,\d*)?$/.test(bounds))
      this.#fail('a "{" in a regular expression needs a backslash, or bounds such as {1,3}.');
    this.#at = end + 1;
    if (this.#source[this.#at] === '?') this.#at += 1;
    return `{${bounds}}`;
  }

  #escape(): string {
    const letter = this.#next();
    const members = CLASSES[letter.toLowerCase()];
    if (members !== undefined) return letter === letter.toLowerCase() ? `[${members}]` : `[^${members}]`;
    if (/[bBAzZGkpP1-9]/.test(letter)) this.#fail(`"\\${letter}" in a regular expression is not supported.`);
    return literalOf(this.#escapedCharacter(letter), this.#flags.includes('i'));
  }

  /** The character of an escape, whose letter has been read. */
  #escapedCharacter(letter: string): string {
    const digits = { x: 2, u: 4, U: 8 }[letter];
    if (digits === undefined) return CONTROLS[letter] ?? letter;
    const code = this.#source.slice(this.#at, this.#at + digits);
    this.#at += digits;
    return String.fromCodePoint(Number.parseInt(code, 16));
  }

  #class(): string {
    let members = '';
    if (this.#source[this.#at] === '^') {
      members += '^';
      this.#at += 1;
    }
    for (let isFirst = true; ; isFirst = false) {
      if (this.#at >= this.#source.length) this.#fail('a class of a regular expression is not closed.');
      const character = this.#next();
      if (character === ']' && !isFirst) return `[${this.#flags.includes('i') ? bothCases(members) : members}]`;
      if (character === '-')
        members += members === '' || members === '^' || this.#source[this.#at] === ']' ? '\\-' : '-';
      else if (character !== '\\') members += classCharacter(character);
      else {
        const letter = this.#next();
        const inner = CLASSES[letter];
        if (inner === undefined && /[DWSpPbB]/.test(letter))
          this.#fail(`"\\${letter}" in a class of a regular expression is not supported.`);
        members += inner ?? classCharacter(this.#escapedCharacter(letter));
      }
    }
  }
}

/** The members of a class, with each letter and each range of letters in both cases. */
function bothCases(members: string): string {
  return members.replaceAll(/(?<!\\)([A-Za-z])-([A-Za-z])|(?<!\\)[A-Za-z]/g, (range) => {
    const other = range === range.toLowerCase() ? range.toUpperCase() : range.toLowerCase();
    return range + other;
  });
}

const CONTROLS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v', '0': '\0' };

/** The text of a Lark string. */
function unescaped(body: string): string {
  return body.replaceAll(
    /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))/g,
    (_, two?: string, four?: string, eight?: string, letter = '') => {
      const code = two ?? four ?? eight;
      return code === undefined ? (CONTROLS[letter] ?? letter) : String.fromCodePoint(Number.parseInt(code, 16));
    },
  );
}

/** A text in GBNF, in upper or lower case if `ignoresCase`. */
function literalOf(text: string, ignoresCase: boolean): string {
  if (!ignoresCase) return `"${Array.from(text, (character) => escaped(character, /["\\]/)).join('')}"`;
  if (text === '') return '""';
  return Array.from(text, (character) => {
    const cases = new Set([character.toLowerCase(), character.toUpperCase()]);
    return `[${[...cases].map(classCharacter).join('')}]`;
  }).join(' ');
}

const classCharacter = (character: string): string => escaped(character, /[\]\\^[-]/);

function escaped(character: string, marks: RegExp): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20 || code === 0x7f) return `\\x${code.toString(16).padStart(2, '0')}`;
  return marks.test(character) ? `\\${character}` : character;
}
