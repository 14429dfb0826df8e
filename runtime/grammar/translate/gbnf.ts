import { ANY, type Characters, characters, codePoint, complement } from './characters.ts';
import {
  choice,
  type Expression,
  type Grammar,
  invalid,
  oneOf,
  quote,
  references,
  repeat,
  sequence,
  text,
  tooLarge,
} from './expression.ts';

type Token =
  | { readonly kind: 'name' | 'mark'; readonly text: string; readonly line: number }
  | { readonly kind: 'literal'; readonly text: string; readonly line: number }
  | { readonly kind: 'class'; readonly set: Characters; readonly line: number }
  | {
      readonly kind: 'bounds';
      readonly min: number;
      readonly max: number;
      readonly text: string;
      readonly line: number;
    };

const MAX_DEPTH = 100;
const MAX_REPETITIONS = 10_000;
const ROOT = 'root';

/**
 * Reads a grammar in llama.cpp's GBNF: `name ::= …` with "literals", [classes], `.`, groups, `|`, `*`, `+`, `?`, `{n,m}` and `#` comments;
 * the start is `root`. Line ends are spaces: a rule lasts until the next `name ::=`. `translate` refuses left recursion.
 *
 * @throws GrammarError with the line of the mistake
 */
export function parseGbnf(source: string): Grammar {
  const tokens = tokenize(source);
  const rules = new Map<string, Expression>();
  const lines = new Map<string, number>();
  const parser = new Parser(tokens);
  for (let rule = parser.rule(); rule !== undefined; rule = parser.rule()) {
    if (rules.has(rule.name))
      throw problem(rule.line, `the rule ${quote(rule.name)} exists already`, 'join both with |');
    rules.set(rule.name, rule.expression);
    lines.set(rule.name, rule.line);
  }
  if (!rules.has(ROOT)) throw invalid('EBNF: there is no rule named root; the grammar starts there: write root ::= …');
  for (const [name, expression] of rules) {
    for (const used of references(expression)) {
      if (!rules.has(used)) {
        throw problem(
          lines.get(name) ?? 0,
          `the rule ${quote(name)} uses ${quote(used)}, which is not defined`,
          'define it',
        );
      }
    }
  }
  return { root: ROOT, rules };
}

function problem(line: number, what: string, advice: string): Error {
  return invalid(`EBNF, line ${line}: ${what}; ${advice}`);
}

class Parser {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  rule(): { name: string; line: number; expression: Expression } | undefined {
    const name = this.#tokens[this.#at];
    if (!name) return undefined;
    if (name.kind !== 'name' || !this.#is('::=', 1)) {
      throw problem(name.line, 'a rule was expected', 'write name ::= and what it stands for');
    }
    this.#at += 2;
    const expression = this.#choice(0);
    const next = this.#tokens[this.#at];
    if (next && !(next.kind === 'name' && this.#is('::=', 1))) {
      throw problem(next.line, `${describe(next)} cannot stand here`, 'check the brackets around it');
    }
    return { name: name.text, line: name.line, expression };
  }

  #choice(depth: number): Expression {
    if (depth > MAX_DEPTH) throw tooLarge(`EBNF: groups are nested more than ${MAX_DEPTH} deep; name the inner ones`);
    const options = [this.#sequence(depth)];
    while (this.#is('|')) {
      this.#at += 1;
      options.push(this.#sequence(depth));
    }
    return choice(options);
  }

  #sequence(depth: number): Expression {
    const parts: Expression[] = [];
    for (let item = this.#item(depth); item !== undefined; item = this.#item(depth)) parts.push(this.#repeated(item));
    return sequence(parts);
  }

  #item(depth: number): Expression | undefined {
    const token = this.#tokens[this.#at];
    if (!token || this.#is('|') || this.#is(')')) return undefined;
    // A name before `::=` begins the next rule.
    if (token.kind === 'name' && this.#is('::=', 1)) return undefined;
    this.#at += 1;
    if (token.kind === 'name') return { kind: 'rule', name: token.text };
    if (token.kind === 'literal') return text(token.text);
    if (token.kind === 'class') return oneOf(token.set);
    if (token.kind === 'mark' && token.text === '.') return oneOf(ANY);
    if (token.kind === 'mark' && token.text === '(') {
      const group = this.#choice(depth + 1);
      if (!this.#is(')')) throw problem(token.line, 'a group is not closed', 'add a )');
      this.#at += 1;
      return group;
    }
    throw problem(token.line, `${describe(token)} cannot stand here`, 'put something before it');
  }

  #repeated(item: Expression): Expression {
    let expression = item;
    for (;;) {
      const token = this.#tokens[this.#at];
      if (token?.kind === 'bounds') expression = repeat(expression, token.min, token.max);
      else if (this.#is('*')) expression = repeat(expression, 0, Number.POSITIVE_INFINITY);
      else if (this.#is('+')) expression = repeat(expression, 1, Number.POSITIVE_INFINITY);
      else if (this.#is('?')) expression = repeat(expression, 0, 1);
      else return expression;
      this.#at += 1;
    }
  }

  #is(mark: string, ahead = 0): boolean {
    const token = this.#tokens[this.#at + ahead];
    return token?.kind === 'mark' && token.text === mark;
  }
}

function describe(token: Token): string {
  return token.kind === 'class' ? 'a class' : quote(token.text);
}

const SPACES = /\s+|#[^\n]*/y;
const NAME = /[A-Za-z][A-Za-z0-9_.-]*/y;
const MARK = /::=|[|()*+?.]/y;
const BOUNDS = /\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}/y;
const LITERAL = /"((?:[^"\\\n]|\\[^\n])*)"/y;
const CLASS = /\[(\^?)((?:[^\]\\\n]|\\[^\n])*)\]/y;

function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let line = 1;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    if (found) at += found[0].length;
    return found;
  };
  while (at < source.length) {
    const space = take(SPACES);
    if (space) {
      line += space[0].split('\n').length - 1;
      continue;
    }
    const name = take(NAME);
    const mark = name ? null : take(MARK);
    if (name || mark) {
      tokens.push({ kind: name ? 'name' : 'mark', text: (name ?? mark)?.[0] ?? '', line });
      continue;
    }
    const bounds = take(BOUNDS);
    const literal = bounds ? null : take(LITERAL);
    const set = bounds || literal ? null : take(CLASS);
    if (bounds) tokens.push({ kind: 'bounds', ...readBounds(bounds, line), text: bounds[0], line });
    else if (literal)
      tokens.push({
        kind: 'literal',
        text: readUnits(literal[1] ?? '', line)
          .map(({ text }) => text)
          .join(''),
        line,
      });
    else if (set) tokens.push({ kind: 'class', set: readClass(set[1] === '^', set[2] ?? '', line), line });
    else throw problem(line, `${quote(source.slice(at, at + 20))} is not valid in a grammar`, 'quote literals as "…"');
  }
  return tokens;
}

function readBounds([all, low, comma, high]: RegExpExecArray, line: number): { min: number; max: number } {
  const min = Number(low);
  const writtenMax = high === '' ? Number.POSITIVE_INFINITY : Number(high);
  const max = comma === '' ? min : writtenMax;
  if ((low === '' && high === '') || max < min)
    throw problem(line, `${all} is not a range`, 'write {n}, {n,} or {n,m}');
  if (min > MAX_REPETITIONS || (max > MAX_REPETITIONS && max !== Number.POSITIVE_INFINITY)) {
    throw tooLarge(`EBNF, line ${line}: ${all} repeats more than ${MAX_REPETITIONS} times; leave the upper bound out`);
  }
  return { min, max };
}

function readClass(negated: boolean, body: string, line: number): Characters {
  const units = readUnits(body, line);
  const ranges: [number, number][] = [];
  for (let i = 0; i < units.length; i += 1) {
    const from = codePoint(units[i]?.text ?? '');
    const dash = units[i + 1];
    const end = units[i + 2];
    if (dash?.text === '-' && !dash.escaped && end) {
      const to = codePoint(end.text);
      if (to < from) throw problem(line, `the class [${body}] has an empty range`, 'write the smaller character first');
      ranges.push([from, to]);
      i += 2;
    } else {
      ranges.push([from, from]);
    }
  }
  return negated ? complement(characters(...ranges)) : characters(...ranges);
}

interface Unit {
  readonly text: string;
  readonly escaped: boolean;
}

const UNIT = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([nrt"\\[\]^-]))|([^\\])/uy;
const CONTROLS: ReadonlyMap<string, string> = new Map([
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
]);

/** The characters of a literal or a class, with escapes replaced. */
function readUnits(body: string, line: number): Unit[] {
  const units: Unit[] = [];
  UNIT.lastIndex = 0;
  while (UNIT.lastIndex < body.length) {
    const at = UNIT.lastIndex;
    const found = UNIT.exec(body);
    if (!found)
      throw problem(
        line,
        `${quote(body.slice(at, at + 10))} is not an escape`,
        'known: \\n \\r \\t \\" \\\\ \\[ \\] \\x.. \\u.... \\U........',
      );
    const code = found[1] ?? found[2] ?? found[3];
    if (code === undefined) {
      const escaped = found[4];
      units.push({
        text: escaped === undefined ? (found[5] ?? '') : (CONTROLS.get(escaped) ?? escaped),
        escaped: escaped !== undefined,
      });
      continue;
    }
    const value = Number.parseInt(code, 16);
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
      throw problem(line, `${found[0]} is not a character`, 'use a Unicode scalar value');
    units.push({ text: String.fromCodePoint(value), escaped: true });
  }
  return units;
}
