import { TemplateError } from './errors.ts';
import { applyFilter, applyTest, escapeHtml, listOf } from './filters.ts';
import { asInteger, asText, bind, methodOf, type Rendering } from './methods.ts';
import { areEqual, binary, compareValues, contains, itemAt, numberOf, sliceOf } from './operators.ts';
import type { Arguments, Expression, ForNode, MacroNode, Statement, Target } from './parser.ts';
import {
  type CallArguments,
  Callable,
  Dict,
  Float,
  Generator,
  isTrue,
  iterate,
  type Meter,
  Namespace,
  PythonObject,
  Range,
  sizeOf,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';

/** Maximum number of nodes, items and pieces of text that one rendering evaluates, reads or makes. */
const MAX_STEPS = 1_000_000;
/** Characters of a made text that count as one step. */
const CHARACTERS_A_STEP = 64;
/** Maximum number of characters of one text, the result included. */
const MAX_CHARACTERS = 16 << 20;
/** Maximum number of numbers in one `range`, as in Jinja2's sandbox. */
const MAX_RANGE = 100_000;
/** Maximum number of macros that call each other. */
const MAX_CALLS = 200;

export interface RenderOptions {
  /** Throws when the rendering has taken too long. Called about every 16 steps. */
  readonly checkTime: () => void;
  /** Text of the current time for a format of Python's `strftime`. */
  readonly formatNow: (format: string) => string;
}

/**
 * Renders a template.
 *
 * @throws TemplateError with the line of the template: where Jinja2 fails, where the template calls `raise_exception`, and at the bounds on steps,
 * text and time
 */
export function renderTemplate(
  template: readonly Statement[],
  variables: ReadonlyMap<string, Value>,
  options: RenderOptions,
): string {
  return new Interpreter(options).render(template, variables);
}

/**
 * A text that `safe` or `escape` marked as HTML. It escapes a text that is added to it, even though a chat template escapes nothing else. Names keep
 * the mark; all other uses read the text.
 */
class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const MARKING_FILTERS = new Set(['safe', 'e', 'escape', 'forceescape']);
/** Filters that leave a marked text as it is. */
const KEEPING_FILTERS = new Set(['safe', 'e', 'escape', 'string']);

const unmarked = (value: Value | Markup): Value => (value instanceof Markup ? value.text : value);
const asMarkup = (value: string | Markup): string => (value instanceof Markup ? value.text : escapeHtml(value));

type Scope = { readonly values: Map<string, Value | Markup>; readonly parent: Scope | null };
type Flow = 'break' | 'continue' | undefined;

const inside = (parent: Scope): Scope => ({ values: new Map(), parent });

class Interpreter implements Rendering {
  readonly #options: RenderOptions;
  #steps = 0;
  #nextCheck = 0;
  #calls = 0;
  readonly #names = new Map<readonly Statement[], ReadonlySet<string>>();
  /** Line of the statement or the expression under evaluation. */
  #line = 1;

  constructor(options: RenderOptions) {
    this.#options = options;
  }

  render(template: readonly Statement[], variables: ReadonlyMap<string, Value>): string {
    const globals: Scope = { values: this.#globals(), parent: null };
    const context: Scope = { values: new Map(variables), parent: globals };
    try {
      const output = new Output(this);
      this.#run(template, inside(context), output);
      return output.text;
    } catch (error) {
      if (error instanceof TemplateError) throw error.at(this.#line);
      // JavaScript's stack is full.
      if (error instanceof RangeError && /call stack/.test(error.message)) {
        throw new TemplateError('the template or its values nest too deep', this.#line);
      }
      throw error;
    }
  }

  steps(steps: number): void {
    this.#steps += steps;
    if (this.#steps < this.#nextCheck) return;
    this.#nextCheck = this.#steps + 16;
    if (!(this.#steps <= MAX_STEPS)) {
      throw new TemplateError('the rendering takes too long; send fewer or shorter messages');
    }
    this.#options.checkTime();
  }

  text(characters: number): void {
    if (!(characters <= MAX_CHARACTERS)) {
      throw new TemplateError(`a text of ${characters} characters; ${MAX_CHARACTERS} is the limit`);
    }
    this.steps(Math.floor(characters / CHARACTERS_A_STEP));
  }

  attribute(object: Value, name: string): Value {
    const value = object instanceof PythonObject ? object.attribute(name) : methodOf(object, name, this);
    if (value !== undefined) return value;
    const item = itemAt(object, name, this);
    return item === undefined ? this.#missing(object, name) : item;
  }

  item(object: Value, key: Value): Value {
    const item = itemAt(object, key, this);
    if (item !== undefined) return item;
    if (typeof key === 'string') return this.attribute(object, key);
    return this.#missing(object, key);
  }

  #missing(object: Value, key: Value): Undefined {
    if (object instanceof Undefined) throw new TemplateError(object.message);
    const owner = object === null ? "'None'" : `'${typeName(object)} object'`;
    return new Undefined(
      typeof key === 'string' ? `${owner} has no attribute '${key}'` : `${owner} has no element ${textOf(key, this)}`,
    );
  }

  #run(statements: readonly Statement[], scope: Scope, output: Output): Flow {
    for (const statement of statements) {
      const flow = this.#statement(statement, scope, output);
      if (flow !== undefined) return flow;
    }
    return undefined;
  }

  #statement(node: Statement, scope: Scope, output: Output): Flow {
    this.#line = node.line;
    this.steps(1);
    switch (node.kind) {
      case 'text':
        output.push(node.text);
        return undefined;
      case 'output':
        output.push(textOf(this.#evaluate(node.value, scope), this));
        return undefined;
      case 'if':
        for (const { test, body } of node.branches) {
          if (isTrue(this.#evaluate(test, scope))) return this.#run(body, scope, output);
        }
        return this.#run(node.otherwise, scope, output);
      case 'for':
        this.#loop(node, this.#evaluate(node.iterable, scope), scope, output, 0);
        return undefined;
      case 'set':
        this.#assign(node.target, this.#marked(node.value, scope), scope);
        return undefined;
      case 'setBlock': {
        const text = this.#captured(node.body, inside(scope));
        this.#assign(node.target, node.filter === null ? text : this.#evaluate(node.filter, scope, text), scope);
        return undefined;
      }
      case 'with': {
        const inner = inside(scope);
        for (const [target, value] of node.values) this.#assign(target, this.#evaluate(value, scope), inner);
        this.#run(node.body, inner, output);
        return undefined;
      }
      case 'macro':
        scope.values.set(node.name, this.#macro(node, scope));
        return undefined;
      case 'call': {
        const { callee, args } = node.call;
        const { positional, named } = this.#arguments(args, scope);
        const caller = this.#macro(node.macro, scope);
        const result = this.#call(this.#evaluate(callee, scope), {
          positional,
          named: new Map(named).set('caller', caller),
        });
        output.push(textOf(result, this));
        return undefined;
      }
      case 'filterBlock':
        output.push(textOf(this.#evaluate(node.filter, scope, this.#captured(node.body, inside(scope))), this));
        return undefined;
      case 'generation':
        this.#run(node.body, inside(scope), output);
        return undefined;
      case 'break':
      case 'continue':
        return node.kind;
    }
  }

  #captured(body: readonly Statement[], scope: Scope): string {
    const output = new Output(this);
    this.#run(body, scope, output);
    return output.text;
  }

  #loop(node: ForNode, iterable: Value, scope: Scope, output: Output, depth0: number): void {
    const recurse = (inner: Value, depth: number): string => {
      const text = new Output(this);
      this.#nested(() => this.#loop(node, inner, scope, text, depth));
      return text.text;
    };
    const items = node.test === null ? iterable : new Generator(this.#filtered(node, node.test, iterable, scope));
    const loop = new Loop(items, depth0, node.isRecursive ? recurse : null, this);
    let hasRun = false;
    while (loop.next()) {
      this.steps(1);
      const body = inside(scope);
      body.values.set('loop', loop);
      this.#assign(node.target, loop.current, body);
      const flow = this.#run(node.body, body, output);
      if (flow === 'break') break;
      // As in Jinja2, an item that ends with `continue` does not keep the `else` part from running.
      if (flow === undefined) hasRun = true;
    }
    if (!hasRun) this.#run(node.otherwise, inside(scope), output);
  }

  *#filtered(node: ForNode, test: Expression, iterable: Value, scope: Scope): Iterable<Value> {
    for (const item of iterate(iterable)) {
      this.steps(1);
      const inner = inside(scope);
      this.#assign(node.target, item, inner);
      if (isTrue(this.#evaluate(test, inner))) yield item;
    }
  }

  #assign(target: Target, value: Value | Markup, scope: Scope): void {
    switch (target.kind) {
      case 'name':
        scope.values.set(target.name, value);
        return;
      case 'namespace': {
        const object = this.#lookup(target.name, scope);
        if (!(object instanceof Namespace)) throw new TemplateError('cannot assign attribute on non-namespace object');
        object.set(target.attribute, unmarked(value));
        return;
      }
      case 'tuple': {
        const items = listOf(unmarked(value), this);
        const { length } = target.items;
        if (items.length < length) {
          throw new TemplateError(`not enough values to unpack (expected ${length}, got ${items.length})`);
        }
        if (items.length > length) throw new TemplateError(`too many values to unpack (expected ${length})`);
        for (const [i, inner] of target.items.entries()) this.#assign(inner, items[i] ?? null, scope);
      }
    }
  }

  #lookup(name: string, scope: Scope): Value | Markup {
    for (let each: Scope | null = scope; each !== null; each = each.parent) {
      const value = each.values.get(name);
      if (value !== undefined) return value;
    }
    return new Undefined(`'${name}' is undefined`);
  }

  #macro({ name, parameters, body }: MacroNode, scope: Scope): Value {
    const names = parameters.map((parameter) => parameter.name);
    const reads = this.#namesIn(body);
    return new Macro(name, (args) => {
      const inner = inside(scope);
      const named = new Map(args.named);
      const values = names.map((parameter, i) => {
        if (i < args.positional.length) return args.positional[i];
        const value = named.get(parameter);
        named.delete(parameter);
        return value;
      });
      if (reads.has('caller') && !names.includes('caller')) {
        inner.values.set('caller', named.get('caller') ?? new Undefined('No caller defined'));
        named.delete('caller');
      }
      const [unknown] = named.keys();
      if (reads.has('kwargs')) inner.values.set('kwargs', new Dict(named, this));
      else if (unknown !== undefined) throw new TemplateError(`macro '${name}' takes no keyword argument '${unknown}'`);
      if (reads.has('varargs')) inner.values.set('varargs', new Tuple(args.positional.slice(names.length)));
      else if (args.positional.length > names.length) {
        throw new TemplateError(`macro '${name}' takes not more than ${names.length} argument(s)`);
      }
      for (const [i, parameter] of parameters.entries()) {
        let value = values[i];
        if (value === undefined) {
          value =
            parameter.default === null
              ? new Undefined(`parameter '${parameter.name}' was not provided`)
              : this.#evaluate(parameter.default, inner);
        }
        inner.values.set(parameter.name, value);
      }
      return this.#nested(() => this.#captured(body, inner));
    });
  }

  /** The names in a body. A loop may define a macro again and again. */
  #namesIn(body: readonly Statement[]): ReadonlySet<string> {
    const known = this.#names.get(body);
    if (known !== undefined) return known;
    const names = readNames(body);
    this.#names.set(body, names);
    return names;
  }

  #nested<T>(run: () => T): T {
    if (this.#calls >= MAX_CALLS) throw new TemplateError(`macros call each other more than ${MAX_CALLS} deep`);
    this.#calls++;
    const line = this.#line;
    const result = run();
    this.#line = line;
    this.#calls--;
    return result;
  }

  #call(callee: Value, args: CallArguments): Value {
    if (callee instanceof Callable || callee instanceof PythonObject) return callee.call(args);
    if (callee instanceof Undefined) throw new TemplateError(callee.message);
    throw new TemplateError(`'${typeName(callee)}' object is not callable`);
  }

  #arguments({ positional, named, list, dict }: Arguments, scope: Scope): CallArguments {
    const values = positional.map((each) => this.#evaluate(each, scope));
    if (list !== null) values.push(...listOf(this.#evaluate(list, scope), this));
    const names = new Map<string, Value>(named.map(([name, value]) => [name, this.#evaluate(value, scope)]));
    if (dict !== null) {
      const more = this.#evaluate(dict, scope);
      if (!(more instanceof Dict))
        throw new TemplateError(`argument after ** must be a mapping, not ${typeName(more)}`);
      for (const [key, value] of more.entries()) {
        const name = asText(key, 'call');
        if (names.has(name)) throw new TemplateError(`got multiple values for keyword argument '${name}'`);
        names.set(name, value);
      }
    }
    return { positional: values, named: names };
  }

  /** @param operand the text that a filter without an operand takes, in a filter block or a block of `set` */
  #evaluate(node: Expression, scope: Scope, operand?: string): Value {
    return unmarked(this.#marked(node, scope, operand));
  }

  #marked(node: Expression, scope: Scope, operand?: string): Value | Markup {
    this.#line = node.line;
    this.steps(1);
    switch (node.kind) {
      case 'constant':
        return node.value;
      case 'name':
        return this.#lookup(node.name, scope);
      case 'list':
        return node.items.map((item) => this.#evaluate(item, scope));
      case 'tuple':
        return new Tuple(node.items.map((item) => this.#evaluate(item, scope)));
      case 'dict':
        return new Dict(
          node.entries.map(([key, value]) => [this.#evaluate(key, scope), this.#evaluate(value, scope)] as const),
          this,
        );
      case 'attribute':
        return this.attribute(this.#evaluate(node.object, scope), node.name);
      case 'item':
        return this.item(this.#evaluate(node.object, scope), this.#evaluate(node.index, scope));
      case 'slice': {
        const object = this.#evaluate(node.object, scope);
        if (object instanceof Undefined) throw new TemplateError(object.message);
        return sliceOf(
          object,
          node.bounds.map((bound) => (bound === null ? null : this.#evaluate(bound, scope))),
          this,
        );
      }
      case 'call': {
        const callee = this.#evaluate(node.callee, scope);
        const args = this.#arguments(node.args, scope);
        this.#line = node.line;
        return this.#call(callee, args);
      }
      case 'filter': {
        const value = node.operand === null ? (operand ?? '') : this.#marked(node.operand, scope, operand);
        if (value instanceof Markup && KEEPING_FILTERS.has(node.name)) return value;
        const args = this.#arguments(node.args, scope);
        this.#line = node.line;
        const result = applyFilter(node.name, unmarked(value), args, this);
        return typeof result === 'string' && MARKING_FILTERS.has(node.name) ? new Markup(result) : result;
      }
      case 'test': {
        if (node.name === 'escaped') return this.#marked(node.operand, scope) instanceof Markup;
        return applyTest(node.name, this.#evaluate(node.operand, scope), this.#arguments(node.args, scope), this);
      }
      case 'not':
        return !isTrue(this.#evaluate(node.operand, scope));
      case 'negative':
      case 'positive':
        return signed(this.#evaluate(node.operand, scope), node.kind === 'negative');
      case 'and':
      case 'or': {
        const left = this.#marked(node.left, scope);
        return isTrue(unmarked(left)) === (node.kind === 'or') ? left : this.#marked(node.right, scope);
      }
      case 'binary':
        return this.#binary(node.operator, this.#marked(node.left, scope), this.#marked(node.right, scope));
      case 'compare': {
        let left = this.#evaluate(node.first, scope);
        for (const [operator, right] of node.rest) {
          const value = this.#evaluate(right, scope);
          if (!this.#holds(operator, left, value)) return false;
          left = value;
        }
        return true;
      }
      case 'concat': {
        const texts = node.parts.map((part) => textOf(this.#evaluate(part, scope), this));
        this.text(texts.reduce((sum, text) => sum + text.length, 0));
        return texts.join('');
      }
      case 'condition':
        if (isTrue(this.#evaluate(node.test, scope))) return this.#marked(node.value, scope);
        return node.otherwise === null
          ? new Undefined('the condition of an "if" without "else" is false')
          : this.#marked(node.otherwise, scope);
    }
  }

  #binary(operator: string, first: Value | Markup, second: Value | Markup): Value | Markup {
    const [left, right] = [unmarked(first), unmarked(second)];
    const isMarked = first instanceof Markup || second instanceof Markup;
    if (isMarked && operator === '+' && typeof left === 'string' && typeof right === 'string') {
      this.text(left.length + right.length);
      return new Markup(
        asMarkup(first instanceof Markup ? first : left) + asMarkup(second instanceof Markup ? second : right),
      );
    }
    if (operator === '%' && typeof left === 'string') {
      return applyFilter('format', left, formatArguments(right, this), this);
    }
    return binary(operator, left, right, this);
  }

  #holds(operator: string, left: Value, right: Value): boolean {
    switch (operator) {
      case '==':
        return areEqual(left, right, this);
      case '!=':
        return !areEqual(left, right, this);
      case 'in':
        return contains(right, left, this);
      case 'not in':
        return !contains(right, left, this);
      default: {
        const order = compareValues(left, right, operator, this);
        if (operator === '<') return order < 0;
        if (operator === '<=') return order <= 0;
        return operator === '>' ? order > 0 : order >= 0;
      }
    }
  }

  #globals(): Map<string, Value> {
    const global = (name: string, call: (args: CallArguments) => Value): [string, Value] => [
      name,
      new Callable(name, call),
    ];
    return new Map([
      global('range', (args) => {
        const [first, second, third] = bind('range', args, ['start', 'stop', 'step'], 1);
        const [start, stop] =
          second === undefined
            ? [0, asInteger(first, 'range')]
            : [asInteger(first, 'range'), asInteger(second, 'range')];
        const step = third === undefined ? 1 : asInteger(third, 'range');
        if (step === 0) throw new TemplateError('range() arg 3 must not be zero');
        const range = new Range(start, stop, step);
        if (range.length > MAX_RANGE) {
          throw new TemplateError(`range() of ${range.length} numbers; ${MAX_RANGE} is the limit`);
        }
        return range;
      }),
      global('dict', ({ positional, named }) => {
        const [first] = positional;
        if (positional.length > 1)
          throw new TemplateError(`dict expected at most 1 argument, got ${positional.length}`);
        return new Dict([...this.#pairs(first), ...named], this);
      }),
      global('namespace', ({ positional, named }) => {
        const namespace = new Namespace();
        for (const [key, value] of [...this.#pairs(positional[0]), ...named]) namespace.set(textOf(key, this), value);
        return namespace;
      }),
      global('cycler', ({ positional }) => {
        if (positional.length === 0) throw new TemplateError('at least one item has to be provided');
        return new Cycler(positional);
      }),
      global('joiner', (args) => new Joiner(bind('joiner', args, ['sep'])[0] ?? ', ')),
      global('raise_exception', (args) => {
        throw new TemplateError(textOf(bind('raise_exception', args, ['message'], 1)[0] ?? null, this));
      }),
      global('strftime_now', (args) =>
        this.#options.formatNow(asText(bind('strftime_now', args, ['format'], 1)[0], 'strftime_now')),
      ),
    ]);
  }

  /** Entries of a dict, or pairs of a list. */
  #pairs(value: Value | undefined): (readonly [Value, Value])[] {
    if (value === undefined) return [];
    if (value instanceof Dict) {
      this.steps(value.size);
      return [...value.entries()];
    }
    return listOf(value, this).map((pair) => {
      const [key, each, ...more] = listOf(pair, this);
      if (key === undefined || each === undefined || more.length > 0)
        throw new TemplateError('a dict needs pairs of a key and a value');
      return [key, each];
    });
  }
}

function signed(value: Value, isNegative: boolean): Value {
  const number = numberOf(value);
  if (value instanceof Undefined) throw new TemplateError(value.message);
  if (number === undefined)
    throw new TemplateError(`bad operand type for unary ${isNegative ? '-' : '+'}: '${typeName(value)}'`);
  if (value instanceof Float) return new Float(isNegative ? -number : number);
  return isNegative ? 0 - number : number;
}

/** The right side of `text % right` as arguments. */
function formatArguments(right: Value, meter: Meter): CallArguments {
  if (right instanceof Dict) {
    meter.steps(right.size);
    const named = new Map(Array.from(right.entries(), ([key, value]) => [textOf(key, meter), value] as const));
    return { positional: [], named };
  }
  return { positional: right instanceof Tuple ? right.items : [right], named: new Map() };
}

/** Those of the special names of macros that a body reads. */
function readNames(body: readonly Statement[]): ReadonlySet<string> {
  const names = new Set<string>();
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) {
      for (const each of node) visit(each);
    } else if (typeof node === 'object' && node !== null) {
      if ('kind' in node && node.kind === 'name' && 'name' in node && typeof node.name === 'string')
        names.add(node.name);
      for (const each of Object.values(node)) visit(each);
    }
  };
  visit(body);
  return names;
}

/** Text under construction. */
class Output {
  readonly #pieces: string[] = [];
  readonly #rendering: Rendering;
  #length = 0;

  constructor(rendering: Rendering) {
    this.#rendering = rendering;
  }

  get text(): string {
    return this.#pieces.join('');
  }

  push(text: string): void {
    this.#length += text.length;
    if (this.#length > MAX_CHARACTERS) this.#rendering.text(this.#length);
    this.#rendering.text(text.length);
    this.#pieces.push(text);
  }
}

class Macro extends PythonObject {
  override readonly typeName = 'Macro';
  override readonly isCallable = true;
  override readonly call: (args: CallArguments) => Value;
  readonly #name: string;

  constructor(name: string, call: (args: CallArguments) => Value) {
    super();
    this.#name = name;
    this.call = call;
  }

  override attribute(name: string): Value | undefined {
    return name === 'name' ? this.#name : undefined;
  }

  override toText(): string {
    return `<Macro '${this.#name}'>`;
  }
}

/** The variable `loop`. It reads items ahead only as far as the template asks, because reading them may run a test. */
class Loop extends PythonObject {
  override readonly typeName = 'LoopContext';
  override readonly isCallable = true;
  current: Value = null;
  readonly #iterable: Value;
  readonly #depth0: number;
  readonly #recurse: ((items: Value, depth0: number) => string) | null;
  readonly #meter: Meter;
  #items: Iterator<Value>;
  #index0 = -1;
  #length: number | undefined;
  #before: Value | undefined;
  #after: Value | undefined;
  #changed: readonly Value[] | undefined;

  constructor(
    iterable: Value,
    depth0: number,
    recurse: ((items: Value, depth0: number) => string) | null,
    meter: Meter,
  ) {
    super();
    this.#meter = meter;
    this.#iterable = iterable;
    this.#items = iterate(iterable)[Symbol.iterator]();
    this.#depth0 = depth0;
    this.#recurse = recurse;
  }

  next(): boolean {
    const item = this.#peek();
    if (item === undefined) return false;
    this.#after = undefined;
    this.#before = this.#index0 === -1 ? undefined : this.current;
    this.current = item;
    this.#index0++;
    return true;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case 'index':
        return this.#index0 + 1;
      case 'index0':
        return this.#index0;
      case 'revindex':
        return this.#size() - this.#index0;
      case 'revindex0':
        return this.#size() - this.#index0 - 1;
      case 'length':
        return this.#size();
      case 'first':
        return this.#index0 === 0;
      case 'last':
        return this.#peek() === undefined;
      case 'previtem':
        return this.#before === undefined ? new Undefined('there is no previous item') : this.#before;
      case 'nextitem': {
        const next = this.#peek();
        return next === undefined ? new Undefined('there is no next item') : next;
      }
      case 'depth':
        return this.#depth0 + 1;
      case 'depth0':
        return this.#depth0;
      case 'cycle':
        return new Callable(name, ({ positional }) => {
          if (positional.length === 0) throw new TemplateError('no items for cycling given');
          return positional[this.#index0 % positional.length] ?? null;
        });
      case 'changed':
        return new Callable(name, ({ positional }) => {
          const isSame = this.#changed !== undefined && areEqual(this.#changed, positional, this.#meter);
          this.#changed = positional;
          return !isSame;
        });
      default:
        return undefined;
    }
  }

  override call(args: CallArguments): Value {
    if (this.#recurse === null) {
      throw new TemplateError("The loop must have the 'recursive' marker to be called recursively.");
    }
    return this.#recurse(bind('loop', args, ['iterable'], 1)[0] ?? null, this.#depth0 + 1);
  }

  override toText(): string {
    return `<LoopContext ${this.#index0 + 1}/${this.#size()}>`;
  }

  #peek(): Value | undefined {
    if (this.#after === undefined) {
      const { done, value } = this.#items.next();
      this.#after = done ? undefined : value;
    }
    return this.#after;
  }

  #size(): number {
    this.#length ??= sizeOf(this.#iterable);
    if (this.#length === undefined) {
      const rest: Value[] = [];
      for (let next = this.#items.next(); !next.done; next = this.#items.next()) {
        this.#meter.steps(1);
        rest.push(next.value);
      }
      this.#length = rest.length + this.#index0 + 1 + (this.#after === undefined ? 0 : 1);
      this.#items = rest[Symbol.iterator]();
    }
    return this.#length;
  }
}

class Cycler extends PythonObject {
  override readonly typeName = 'Cycler';
  readonly #items: readonly Value[];
  #at = 0;

  constructor(items: readonly Value[]) {
    super();
    this.#items = items;
  }

  override attribute(name: string): Value | undefined {
    if (name === 'current') return this.#items[this.#at] ?? null;
    if (name === 'next') {
      return new Callable(name, () => {
        const value = this.#items[this.#at] ?? null;
        this.#at = (this.#at + 1) % this.#items.length;
        return value;
      });
    }
    if (name !== 'reset') return undefined;
    return new Callable(name, () => {
      this.#at = 0;
      return null;
    });
  }

  override toText(): string {
    return '<Cycler>';
  }
}

class Joiner extends PythonObject {
  override readonly typeName = 'Joiner';
  override readonly isCallable = true;
  readonly #separator: Value;
  #isUsed = false;

  constructor(separator: Value) {
    super();
    this.#separator = separator;
  }

  override attribute(): Value | undefined {
    return undefined;
  }

  override call(): Value {
    const text = this.#isUsed ? this.#separator : '';
    this.#isUsed = true;
    return text;
  }

  override toText(): string {
    return '<Joiner>';
  }
}
