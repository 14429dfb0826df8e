import { TemplateError } from './errors.ts';
import { type Token, tokenize } from './lexer.ts';
import { Float, type Value } from './values.ts';

interface At {
  /** Line of the template, from 1. */
  readonly line: number;
}

export interface Arguments {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  /** `*list` and `**dict`. */
  readonly list: Expression | null;
  readonly dict: Expression | null;
}

export type Expression = At &
  (
    | { readonly kind: 'constant'; readonly value: Value }
    | { readonly kind: 'name'; readonly name: string }
    | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
    | { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
    | { readonly kind: 'attribute'; readonly object: Expression; readonly name: string }
    | { readonly kind: 'item'; readonly object: Expression; readonly index: Expression }
    | { readonly kind: 'slice'; readonly object: Expression; readonly bounds: readonly (Expression | null)[] }
    | { readonly kind: 'call'; readonly callee: Expression; readonly args: Arguments }
    /** `operand` is null in a filter block or a block of `set`. */
    | { readonly kind: 'filter'; readonly operand: Expression | null; readonly name: string; readonly args: Arguments }
    | { readonly kind: 'test'; readonly operand: Expression; readonly name: string; readonly args: Arguments }
    | { readonly kind: 'not' | 'negative' | 'positive'; readonly operand: Expression }
    | { readonly kind: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
    | { readonly kind: 'binary'; readonly operator: string; readonly left: Expression; readonly right: Expression }
    | {
        readonly kind: 'compare';
        readonly first: Expression;
        readonly rest: readonly (readonly [string, Expression])[];
      }
    | { readonly kind: 'concat'; readonly parts: readonly Expression[] }
    | {
        readonly kind: 'condition';
        readonly test: Expression;
        readonly value: Expression;
        readonly otherwise: Expression | null;
      }
  );

/** The left side of an assignment. */
export type Target = At &
  (
    | { readonly kind: 'name'; readonly name: string }
    | { readonly kind: 'tuple'; readonly items: readonly Target[] }
    | { readonly kind: 'namespace'; readonly name: string; readonly attribute: string }
  );

export interface Parameter {
  readonly name: string;
  readonly default: Expression | null;
}

export interface MacroNode extends At {
  readonly kind: 'macro';
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Statement[];
}

export interface ForNode extends At {
  readonly kind: 'for';
  readonly target: Target;
  readonly iterable: Expression;
  readonly test: Expression | null;
  readonly isRecursive: boolean;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
}

export type Statement =
  | ForNode
  | MacroNode
  | (At &
      (
        | { readonly kind: 'text'; readonly text: string }
        | { readonly kind: 'output'; readonly value: Expression }
        | { readonly kind: 'if'; readonly branches: readonly Branch[]; readonly otherwise: readonly Statement[] }
        | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
        | {
            readonly kind: 'setBlock';
            readonly target: Target;
            readonly filter: Expression | null;
            readonly body: readonly Statement[];
          }
        | {
            readonly kind: 'with';
            readonly values: readonly (readonly [Target, Expression])[];
            readonly body: readonly Statement[];
          }
        | { readonly kind: 'call'; readonly macro: MacroNode; readonly call: Expression & { readonly kind: 'call' } }
        | { readonly kind: 'filterBlock'; readonly filter: Expression; readonly body: readonly Statement[] }
        /** The text of an assistant, which transformers marks for training. */
        | { readonly kind: 'generation'; readonly body: readonly Statement[] }
        | { readonly kind: 'break' | 'continue' }
      ));

interface Branch {
  readonly test: Expression;
  readonly body: readonly Statement[];
}

const NO_ARGUMENTS: Arguments = { positional: [], named: [], list: null, dict: null };
const NOTHING_LOADED = 'a chat template is one text; move the other text into it';
/** Statements of Jinja2 that a chat template cannot use, with the reason. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  include: NOTHING_LOADED,
  import: NOTHING_LOADED,
  from: NOTHING_LOADED,
  extends: NOTHING_LOADED,
  block: 'blocks serve inheritance, which a chat template cannot use',
  autoescape: 'a chat template never escapes',
  trans: 'no translations are installed',
  do: 'use "set"',
};
/** Maximum depth of nested tags and brackets. */
const MAX_DEPTH = 200;

/**
 * Parses a template.
 *
 * @throws TemplateError with the line; the message says what was expected or is not supported
 */
export function parseTemplate(source: string): readonly Statement[] {
  return new Parser(tokenize(source)).template();
}

class Parser {
  readonly #tokens: readonly Token[];
  #at = 0;
  #depth = 0;
  #loops = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  template(): readonly Statement[] {
    const body = this.#body([]);
    if (this.#current.type !== 'end') throw this.#unexpected();
    return body;
  }

  /** Statements up to a tag with one of these names (not consumed beyond its beginning), or up to the end if there are none. */
  #body(ends: readonly string[], of?: Token): Statement[] {
    const body: Statement[] = [];
    for (;;) {
      const token = this.#current;
      if (token.type === 'data') {
        this.#at++;
        body.push({ kind: 'text', text: token.value, line: token.line });
      } else if (token.type === 'variableBegin') {
        this.#at++;
        body.push({ kind: 'output', value: this.#tuple(true), line: token.line });
        this.#expectType('variableEnd', '"}}"');
      } else if (token.type === 'blockBegin') {
        this.#at++;
        const { type, value } = this.#current;
        if (type === 'name' && ends.includes(value)) return body;
        body.push(this.#nested(() => this.#statement()));
      } else if (ends.length === 0) {
        return body;
      } else {
        throw this.#error(
          `"{% ${of?.value ?? ''} %}" has no end; expected ${ends.map((end) => `"{% ${end} %}"`).join(' or ')}`,
          of?.line,
        );
      }
    }
  }

  /** The rest of a tag, and the body up to its end tag, which is consumed. */
  #block(tag: Token, end: string): Statement[] {
    this.#endTag();
    const body = this.#body([end], tag);
    this.#at++;
    this.#endTag();
    return body;
  }

  #endTag(): void {
    this.#expectType('blockEnd', '"%}"');
  }

  #statement(): Statement {
    const tag = this.#expectType('name', 'the name of a statement');
    const line = tag.line;
    switch (tag.value) {
      case 'for':
        return this.#for(tag);
      case 'if':
        return this.#if(tag);
      case 'set':
        return this.#set(tag);
      case 'macro': {
        const { value: name } = this.#expectType('name', 'the name of the macro');
        return { kind: 'macro', name, parameters: this.#parameters(), body: this.#outsideLoops(tag), line };
      }
      case 'call': {
        const parameters = this.#is('(') ? this.#parameters() : [];
        const call = this.#expression();
        if (call.kind !== 'call') throw this.#error('"{% call %}" needs a call of a macro', line);
        const body = this.#outsideLoops(tag);
        return { kind: 'call', macro: { kind: 'macro', name: 'caller', parameters, body, line }, call, line };
      }
      case 'filter': {
        const filter = this.#filters(null);
        return { kind: 'filterBlock', filter, body: this.#block(tag, 'endfilter'), line };
      }
      case 'with': {
        const values: (readonly [Target, Expression])[] = [];
        while (this.#current.type !== 'blockEnd') {
          if (values.length > 0) this.#expect(',');
          const target = this.#target(false);
          this.#expect('=');
          values.push([target, this.#expression()]);
        }
        return { kind: 'with', values, body: this.#block(tag, 'endwith'), line };
      }
      case 'print': {
        const parts = [this.#expression()];
        while (this.#skip(',')) parts.push(this.#expression());
        this.#endTag();
        return { kind: 'output', value: { kind: 'concat', parts, line }, line };
      }
      case 'generation':
        return { kind: 'generation', body: this.#outsideLoops(tag), line };
      case 'break':
      case 'continue':
        if (this.#loops === 0) throw this.#error(`"{% ${tag.value} %}" is outside of a loop`, line);
        this.#endTag();
        return { kind: tag.value, line };
      default: {
        const reason = UNSUPPORTED[tag.value];
        if (reason !== undefined) throw this.#error(`the statement "${tag.value}" is not supported: ${reason}`, line);
        if (tag.value.startsWith('end') || tag.value === 'else' || tag.value === 'elif') {
          throw this.#error(`"{% ${tag.value} %}" ends nothing`, line);
        }
        throw this.#error(`unknown statement "${tag.value}"`, line);
      }
    }
  }

  #outsideLoops(tag: Token): Statement[] {
    const loops = this.#loops;
    this.#loops = 0;
    const body = this.#block(tag, `end${tag.value}`);
    this.#loops = loops;
    return body;
  }

  #for(tag: Token): Statement {
    const target = this.#targets();
    this.#expectName('in');
    const iterable = this.#tuple(false, 'recursive');
    const test = this.#skipName('if') ? this.#expression() : null;
    const isRecursive = this.#skipName('recursive');
    this.#endTag();
    this.#loops++;
    const body = this.#body(['endfor', 'else'], tag);
    this.#loops--;
    let otherwise: Statement[] = [];
    if (this.#next().value === 'else') {
      this.#endTag();
      otherwise = this.#body(['endfor'], tag);
      this.#at++;
    }
    this.#endTag();
    return { kind: 'for', target, iterable, test, isRecursive, body, otherwise, line: tag.line };
  }

  #if(tag: Token): Statement {
    const branches: Branch[] = [];
    let otherwise: Statement[] = [];
    for (;;) {
      const test = this.#tuple(false);
      this.#endTag();
      branches.push({ test, body: this.#body(['elif', 'else', 'endif'], tag) });
      const end = this.#next().value;
      if (end === 'elif') continue;
      if (end === 'else') {
        this.#endTag();
        otherwise = this.#body(['endif'], tag);
        this.#at++;
      }
      this.#endTag();
      return { kind: 'if', branches, otherwise, line: tag.line };
    }
  }

  #set(tag: Token): Statement {
    const target = this.#targets();
    if (this.#skip('=')) {
      const value = this.#tuple(true);
      this.#endTag();
      return { kind: 'set', target, value, line: tag.line };
    }
    const filter = this.#is('|') ? this.#filterTail(null) : null;
    return { kind: 'setBlock', target, filter, body: this.#block(tag, 'endset'), line: tag.line };
  }

  /** One target, or several with commas between them. */
  #targets(): Target {
    const line = this.#current.line;
    const items = [this.#target(true)];
    let isTuple = false;
    while (this.#skip(',')) {
      isTuple = true;
      if (this.#current.type !== 'name' && !this.#is('(')) break;
      if (this.#isName('in')) break;
      items.push(this.#target(true));
    }
    const [first] = items;
    return !isTuple && first !== undefined ? first : { kind: 'tuple', items, line };
  }

  #target(mayBeAttribute: boolean): Target {
    const line = this.#current.line;
    if (this.#skip('(')) {
      const inner = this.#nested(() => this.#targets());
      this.#expect(')');
      return inner;
    }
    const { value: name } = this.#expectType('name', 'a name to assign to');
    if (CONSTANTS.has(name)) throw this.#error(`"${name}" cannot be assigned to`, line);
    if (!mayBeAttribute || !this.#skip('.')) return { kind: 'name', name, line };
    return { kind: 'namespace', name, attribute: this.#expectType('name', 'the name of an attribute').value, line };
  }

  #parameters(): Parameter[] {
    this.#expect('(');
    const parameters: Parameter[] = [];
    while (!this.#is(')')) {
      if (parameters.length > 0) this.#expect(',');
      const { value: name, line } = this.#expectType('name', 'the name of a parameter');
      const value = this.#skip('=') ? this.#expression() : null;
      if (value === null && parameters.at(-1)?.default) {
        throw this.#error(`the parameter "${name}" without a default follows one with a default`, line);
      }
      parameters.push({ name, default: value });
    }
    this.#expect(')');
    return parameters;
  }

  #expression(withCondition = true): Expression {
    return this.#nested(() => (withCondition ? this.#condition() : this.#or()));
  }

  #condition(): Expression {
    const line = this.#current.line;
    let value = this.#or();
    while (this.#skipName('if')) {
      const test = this.#or();
      const otherwise = this.#skipName('else') ? this.#nested(() => this.#condition()) : null;
      value = { kind: 'condition', test, value, otherwise, line };
    }
    return value;
  }

  #or(): Expression {
    let left = this.#and();
    while (this.#isName('or')) {
      const { line } = this.#next();
      left = { kind: 'or', left, right: this.#and(), line };
    }
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.#isName('and')) {
      const { line } = this.#next();
      left = { kind: 'and', left, right: this.#not(), line };
    }
    return left;
  }

  #not(): Expression {
    const line = this.#current.line;
    if (!this.#skipName('not')) return this.#compare();
    return { kind: 'not', operand: this.#nested(() => this.#not()), line };
  }

  #compare(): Expression {
    const line = this.#current.line;
    const first = this.#sum();
    const rest: (readonly [string, Expression])[] = [];
    for (;;) {
      const { type, value } = this.#current;
      let operator: string;
      if (type === 'operator' && COMPARISONS.has(value)) operator = value;
      else if (this.#isName('in')) operator = 'in';
      else if (this.#isName('not') && this.#tokens[this.#at + 1]?.value === 'in') {
        this.#at++;
        operator = 'not in';
      } else break;
      this.#at++;
      rest.push([operator, this.#sum()]);
    }
    return rest.length === 0 ? first : { kind: 'compare', first, rest, line };
  }

  #sum(): Expression {
    return this.#binary(['+', '-'], () => this.#concat());
  }

  #concat(): Expression {
    const line = this.#current.line;
    const first = this.#product();
    if (!this.#is('~')) return first;
    const parts = [first];
    while (this.#skip('~')) parts.push(this.#product());
    return { kind: 'concat', parts, line };
  }

  #product(): Expression {
    return this.#binary(['*', '/', '//', '%'], () => this.#binary(['**'], () => this.#unary(true)));
  }

  /** Operators of one rank, all of which associate to the left in Jinja2. */
  #binary(operators: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    while (this.#current.type === 'operator' && operators.includes(this.#current.value)) {
      const { value: operator, line } = this.#next();
      left = { kind: 'binary', operator, left, right: operand(), line };
    }
    return left;
  }

  #unary(withFilters: boolean): Expression {
    const line = this.#current.line;
    let node: Expression;
    if (this.#skip('-')) node = { kind: 'negative', operand: this.#nested(() => this.#unary(false)), line };
    else if (this.#skip('+')) node = { kind: 'positive', operand: this.#nested(() => this.#unary(false)), line };
    else node = this.#primary();
    node = this.#postfix(node);
    return withFilters ? this.#filterTail(node) : node;
  }

  #primary(): Expression {
    const token = this.#next();
    const { type, value, line } = token;
    switch (type) {
      case 'name':
        return CONSTANTS.has(value)
          ? { kind: 'constant', value: CONSTANTS.get(value) ?? null, line }
          : { kind: 'name', name: value, line };
      case 'string': {
        let text = value;
        while (this.#current.type === 'string') text += this.#next().value;
        return { kind: 'constant', value: text, line };
      }
      case 'integer':
        return { kind: 'constant', value: Number(integerText(value)), line };
      case 'float':
        return { kind: 'constant', value: new Float(Number(value.replaceAll('_', ''))), line };
      case 'operator':
        if (value === '(') {
          const inner = this.#nested(() => this.#tuple(true, undefined, true));
          this.#expect(')');
          return inner;
        }
        if (value === '[') return { kind: 'list', items: this.#listed(']', () => this.#expression()), line };
        if (value === '{') {
          const entry = (): readonly [Expression, Expression] => {
            const key = this.#expression();
            this.#expect(':');
            return [key, this.#expression()];
          };
          return { kind: 'dict', entries: this.#listed('}', entry), line };
        }
    }
    throw this.#unexpected(token);
  }

  /** Items with commas between them, up to and with the closing bracket. */
  #listed<T>(close: string, item: () => T): T[] {
    const items: T[] = [];
    while (!this.#is(close)) {
      if (items.length > 0) this.#expect(',');
      if (this.#is(close)) break;
      items.push(item());
    }
    this.#expect(close);
    return items;
  }

  /**
   * An expression, or a tuple without brackets around it.
   *
   * @param endName a name that may follow the tuple
   * @param mayBeEmpty whether `()` is a tuple
   */
  #tuple(withCondition: boolean, endName?: string, mayBeEmpty = false): Expression {
    const line = this.#current.line;
    const items: Expression[] = [];
    let isTuple = false;
    for (;;) {
      if (items.length > 0) {
        if (!this.#skip(',')) break;
        isTuple = true;
      }
      const { type, value } = this.#current;
      if (type === 'variableEnd' || type === 'blockEnd' || this.#is(')')) break;
      if (type === 'name' && value === endName) break;
      items.push(this.#expression(withCondition));
    }
    const [first] = items;
    if (!isTuple && first !== undefined) return first;
    if (!isTuple && !mayBeEmpty) throw this.#error(`expected an expression, got ${this.#described()}`);
    return { kind: 'tuple', items, line };
  }

  #postfix(operand: Expression): Expression {
    let node = operand;
    for (;;) {
      const { line } = this.#current;
      if (this.#skip('.')) node = this.#attribute(node, line);
      else if (this.#skip('[')) node = this.#subscript(node, line);
      else if (this.#is('(')) node = { kind: 'call', callee: node, args: this.#arguments(), line };
      else return node;
    }
  }

  #attribute(object: Expression, line: number): Expression {
    const token = this.#next();
    if (token.type === 'name') return { kind: 'attribute', object, name: token.value, line };
    if (token.type !== 'integer') throw this.#unexpected(token, 'the name of an attribute');
    const index: Expression = { kind: 'constant', value: Number(integerText(token.value)), line };
    return { kind: 'item', object, index, line };
  }

  #subscript(object: Expression, line: number): Expression {
    const bounds: (Expression | null)[] = [];
    let bound: Expression | null = this.#is(':') ? null : this.#expression();
    if (bound !== null && !this.#is(':')) {
      const items = [bound];
      while (this.#skip(',')) items.push(this.#expression());
      this.#expect(']');
      return { kind: 'item', object, index: items.length === 1 ? bound : { kind: 'tuple', items, line }, line };
    }
    bounds.push(bound);
    while (bounds.length < 3 && this.#skip(':')) {
      bound = this.#is(':') || this.#is(']') ? null : this.#expression();
      bounds.push(bound);
    }
    this.#expect(']');
    return { kind: 'slice', object, bounds, line };
  }

  #arguments(): Arguments {
    this.#expect('(');
    const positional: Expression[] = [];
    const named: (readonly [string, Expression])[] = [];
    let list: Expression | null = null;
    let dict: Expression | null = null;
    for (let isFirst = true; !this.#is(')'); isFirst = false) {
      if (!isFirst) this.#expect(',');
      if (this.#is(')')) break;
      if (dict !== null) throw this.#error('an argument follows "**"');
      if (this.#skip('*')) {
        if (list !== null) throw this.#error('a second "*" among the arguments');
        list = this.#expression();
      } else if (this.#skip('**')) {
        dict = this.#expression();
      } else if (this.#current.type === 'name' && this.#isOperator('=', this.#tokens[this.#at + 1])) {
        const { value: name } = this.#next();
        this.#at++;
        named.push([name, this.#expression()]);
      } else {
        if (named.length > 0 || list !== null) throw this.#error('a positional argument follows a named one');
        positional.push(this.#expression());
      }
    }
    this.#expect(')');
    return { positional, named, list, dict };
  }

  /** Filters, tests and calls after an operand. */
  #filterTail(operand: Expression | null): Expression {
    let node = operand;
    for (;;) {
      const { line } = this.#current;
      if (this.#skip('|')) node = this.#filter(node);
      else if (node !== null && this.#skipName('is')) node = this.#test(node, line);
      else if (node !== null && this.#is('(')) node = { kind: 'call', callee: node, args: this.#arguments(), line };
      else if (node === null) throw this.#unexpected();
      else return node;
    }
  }

  /** A chain of filters that begins with a name, as in `{% filter upper | trim %}`. */
  #filters(operand: Expression | null): Expression {
    let node = this.#filter(operand);
    while (this.#skip('|')) node = this.#filter(node);
    return node;
  }

  #filter(operand: Expression | null): Expression {
    const { line } = this.#current;
    const name = this.#dotted('the name of a filter');
    return { kind: 'filter', operand, name, args: this.#is('(') ? this.#arguments() : NO_ARGUMENTS, line };
  }

  #test(operand: Expression, line: number): Expression {
    const isNegated = this.#skipName('not');
    const name = this.#dotted('the name of a test');
    let args = NO_ARGUMENTS;
    const { type, value } = this.#current;
    if (this.#is('(')) args = this.#arguments();
    else if (
      type === 'string' ||
      type === 'integer' ||
      type === 'float' ||
      this.#is('[') ||
      this.#is('{') ||
      (type === 'name' && value !== 'else' && value !== 'or' && value !== 'and')
    ) {
      if (this.#isName('is')) throw this.#error('tests cannot follow each other; use "and"');
      args = { ...NO_ARGUMENTS, positional: [this.#postfix(this.#primary())] };
    }
    const test: Expression = { kind: 'test', operand, name, args, line };
    return isNegated ? { kind: 'not', operand: test, line } : test;
  }

  #dotted(what: string): string {
    let name = this.#expectType('name', what).value;
    while (this.#skip('.')) name += `.${this.#expectType('name', what).value}`;
    return name;
  }

  get #current(): Token {
    // The last token is the end, which nothing consumes but `#next`, whose callers refuse it.
    return this.#tokens[Math.min(this.#at, this.#tokens.length - 1)] ?? { type: 'end', value: '', line: 1 };
  }

  #next(): Token {
    const token = this.#current;
    this.#at++;
    return token;
  }

  #isOperator(value: string, token: Token | undefined): boolean {
    return token?.type === 'operator' && token.value === value;
  }

  #is(operator: string): boolean {
    return this.#isOperator(operator, this.#current);
  }

  #skip(operator: string): boolean {
    const isNext = this.#is(operator);
    if (isNext) this.#at++;
    return isNext;
  }

  #isName(name: string): boolean {
    return this.#current.type === 'name' && this.#current.value === name;
  }

  #skipName(name: string): boolean {
    const isNext = this.#isName(name);
    if (isNext) this.#at++;
    return isNext;
  }

  #expect(operator: string): void {
    if (!this.#skip(operator)) throw this.#unexpected(this.#current, `"${operator}"`);
  }

  #expectName(name: string): void {
    if (!this.#skipName(name)) throw this.#unexpected(this.#current, `"${name}"`);
  }

  #expectType(type: Token['type'], what: string): Token {
    const token = this.#next();
    if (token.type !== type) throw this.#unexpected(token, what);
    return token;
  }

  #nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw this.#error(`tags and brackets are nested deeper than ${MAX_DEPTH}`);
    const result = parse();
    this.#depth--;
    return result;
  }

  #described(token = this.#current): string {
    return token.type === 'end' || token.type === 'data'
      ? `the ${token.type === 'end' ? 'end' : 'text'} of the template`
      : `"${token.value}"`;
  }

  #unexpected(token = this.#current, expected?: string): TemplateError {
    const what = this.#described(token);
    return this.#error(expected === undefined ? `unexpected ${what}` : `expected ${expected}, got ${what}`, token.line);
  }

  #error(message: string, line = this.#current.line): TemplateError {
    return new TemplateError(message, line);
  }
}

const COMPARISONS = new Set(['==', '!=', '<', '<=', '>', '>=']);
const CONSTANTS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);

/** Python's digits as JavaScript reads them: `1_000`, `00`. */
const integerText = (text: string): string => (/^[0_]+$/.test(text) ? '0' : text.replaceAll('_', ''));
