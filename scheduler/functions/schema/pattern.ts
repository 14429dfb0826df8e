import type { StepBudget } from './budget.ts';

/** Maximum number of instructions of one pattern with its repetitions written out, which bounds the steps per character of a text. */
const MAX_PATTERN_SIZE = 2000;

/** Maximum different character classes and escapes in one pattern, because V8 compiles each. */
const MAX_SETS = 100;

const ASCII = 128;
/** Answers that a set caches for code points outside of ASCII. */
const OTHER_ANSWERS = 64;
/** Steps charged for a code point outside of ASCII, since V8 may have to test it. */
const OTHER_STEPS = 6;

const SPLIT = 0;
const ASSERT = 1;
const SET = 2;
const LITERAL = 3;
const MATCH = 4;

/**
 * Matches a regular expression in linear time: a Thompson automaton whose states advance together (Pike, "The text editor sam", 1987; Cox,
 * "Regular Expression Matching: the Virtual Machine Approach", 2009). V8 itself decides which single code points a set holds, so sets mean
 * exactly what ECMAScript says.
 */
export class Pattern {
  readonly #program: Program;
  /** Threads (see `Threads`) of this and of the next position. */
  #currentThreads: Threads;
  #nextThreads: Threads;

  /** @throws PatternError for an invalid pattern, or one that cannot be matched in linear time */
  constructor(source: string) {
    const tree = parsePattern(source);
    const size = sizeOf(tree);
    // Not `size > MAX_PATTERN_SIZE`, which NaN would pass.
    if (!(size <= MAX_PATTERN_SIZE)) {
      throw new PatternError(
        `has ${Number.isFinite(size) ? size : 'too many'} steps with its repetitions written out; ${MAX_PATTERN_SIZE} are allowed. Repeat less, or bound the length by \`maxLength\``,
      );
    }
    this.#program = new Program(tree);
    this.#currentThreads = new Threads(this.#program.length);
    this.#nextThreads = new Threads(this.#program.length);
  }

  /** Instructions, which bound the steps per character of a text. */
  get size(): number {
    return this.#program.length;
  }

  /** True when some part of a text matches, as in `RegExp.test` with the flag `u`. Throws the budget's errors. */
  test(text: string, budget: StepBudget): boolean {
    const program = this.#program;
    this.#currentThreads.clear();
    let previousCode = -1;
    for (let position = 0; ; ) {
      const code = position < text.length ? (text.codePointAt(position) ?? -1) : -1;
      const carriedCount = this.#currentThreads.count;
      const isMatch = this.#follow(0, previousCode, code);
      budget.spend((1 + this.#currentThreads.count) * (code < ASCII ? 1 : OTHER_STEPS));
      if (isMatch) return true;
      // No thread is left, and an anchored pattern starts new ones only at the start of the text.
      if (code < 0 || (program.anchored && carriedCount === 0 && position > 0)) return false;
      position += code > 0xffff ? 2 : 1;
      const consumedCode = code;
      const nextCode = position < text.length ? (text.codePointAt(position) ?? -1) : -1;
      this.#nextThreads.clear();
      const current = this.#currentThreads;
      this.#currentThreads = this.#nextThreads;
      this.#nextThreads = current;
      for (let i = 0; i < current.count; i++) {
        const pc = current.list[i] ?? 0;
        if (!program.takes(pc, consumedCode)) continue;
        if (!this.#follow(pc + 1, consumedCode, nextCode)) continue;
        budget.spend(this.#currentThreads.count);
        return true;
      }
      previousCode = code;
    }
  }

  /** Adds threads for an instruction and for all that it reaches without a character. Returns true when the pattern's end is among them. */
  #follow(start: number, previousCode: number, nextCode: number): boolean {
    const { op, first, second } = this.#program;
    const threads = this.#currentThreads;
    const { stack } = threads;
    let height = 0;
    stack[height++] = start;
    while (height > 0) {
      height -= 1;
      const pc = stack[height] ?? 0;
      if (!threads.add(pc)) continue;
      switch (op[pc]) {
        case MATCH:
          return true;
        case SPLIT:
          stack[height++] = second[pc] ?? 0;
          stack[height++] = first[pc] ?? 0;
          break;
        case ASSERT:
          if (assertionHolds(first[pc] ?? 0, previousCode, nextCode)) stack[height++] = pc + 1;
          break;
      }
    }
    return false;
  }
}

/**
 * The threads at one position of the text. A thread is the instruction that one way of matching has reached; each instruction is listed once.
 * `#indexes` has the place of each instruction in the list; entries of earlier positions stay in it, and `add` detects them.
 */
class Threads {
  readonly list: Uint16Array;
  readonly stack: Uint16Array;
  readonly #indexes: Uint16Array;
  count = 0;

  constructor(instructions: number) {
    this.list = new Uint16Array(instructions);
    // Each instruction is added once and pushes two at most.
    this.stack = new Uint16Array(2 * instructions + 1);
    this.#indexes = new Uint16Array(instructions);
  }

  clear(): void {
    this.count = 0;
  }

  add(pc: number): boolean {
    const index = this.#indexes[pc] ?? 0;
    if (index < this.count && this.list[index] === pc) return false;
    this.#indexes[pc] = this.count;
    this.list[this.count++] = pc;
    return true;
  }
}

/** A pattern's instructions. `first` and `second` of a split are its targets; `first` of others is a code point, or a set's or assertion's number. */
class Program {
  readonly op: number[] = [];
  readonly first: number[] = [];
  readonly second: number[] = [];
  /** True when every match begins at the start of the text. */
  readonly anchored: boolean;
  readonly #sets: CodePoints[] = [];
  readonly #setNumbers = new Map<string, number>();

  constructor(tree: PatternNode) {
    this.#emit(tree);
    this.#push(MATCH, 0, 0);
    this.anchored = isAnchored(tree);
  }

  get length(): number {
    return this.op.length;
  }

  /** True when an instruction matches a code point. */
  takes(pc: number, code: number): boolean {
    const op = this.op[pc];
    const operand = this.first[pc] ?? 0;
    if (op === LITERAL) return operand === code;
    return op === SET && this.#sets[operand]?.has(code) === true;
  }

  #emit(node: PatternNode): void {
    switch (node.kind) {
      case 'set':
        this.#emitSet(node.source);
        return;
      case 'assertion':
        this.#push(ASSERT, ASSERTIONS.indexOf(node.assertion), 0);
        return;
      case 'sequence':
        for (const item of node.items) this.#emit(item);
        return;
      case 'alternatives':
        this.#emitAlternatives(node.items);
        return;
      case 'repeat':
        this.#emitRepeat(node.item, node.least, node.most);
    }
  }

  #emitAlternatives(items: readonly PatternNode[]): void {
    const jumps: number[] = [];
    for (const [index, item] of items.entries()) {
      const isLast = index === items.length - 1;
      const split = isLast ? -1 : this.#push(SPLIT, this.length + 1, 0);
      this.#emit(item);
      if (isLast) continue;
      jumps.push(this.#push(SPLIT, 0, 0));
      this.second[split] = this.length;
    }
    for (const jump of jumps) this.#jump(jump, this.length);
  }

  #emitRepeat(item: PatternNode, least: number, most: number): void {
    for (let i = 0; i < least; i++) this.#emit(item);
    if (most === Number.POSITIVE_INFINITY) {
      const split = this.#push(SPLIT, this.length + 1, 0);
      this.#emit(item);
      this.#jump(this.#push(SPLIT, 0, 0), split);
      this.second[split] = this.length;
      return;
    }
    const splits: number[] = [];
    for (let i = least; i < most; i++) {
      splits.push(this.#push(SPLIT, this.length + 1, 0));
      this.#emit(item);
    }
    for (const split of splits) this.second[split] = this.length;
  }

  #push(op: number, first: number, second: number): number {
    this.op.push(op);
    this.first.push(first);
    this.second.push(second);
    return this.op.length - 1;
  }

  /** Turns a split into a jump: both targets are the same. */
  #jump(pc: number, target: number): void {
    this.first[pc] = target;
    this.second[pc] = target;
  }

  #emitSet(source: string): void {
    const code = source.codePointAt(0) ?? 0;
    if (source !== '.' && source.length === String.fromCodePoint(code).length) {
      this.#push(LITERAL, code, 0);
      return;
    }
    let number = this.#setNumbers.get(source);
    if (number === undefined) {
      if (this.#sets.length >= MAX_SETS) {
        throw new PatternError(`has more than ${MAX_SETS} different character classes and escapes. Use fewer`);
      }
      number = this.#sets.push(new CodePoints(source)) - 1;
      this.#setNumbers.set(source, number);
    }
    this.#push(SET, number, 0);
  }
}

/** The code points that an atom of a pattern matches. */
class CodePoints {
  readonly #regExp: RegExp;
  /** 0 not tested yet, 1 in the set, 2 not in it. */
  readonly #ascii = new Uint8Array(ASCII);
  /** Cached answers for other code points. Slot `code % OTHER_ANSWERS` has `2 × code + answer` of the last code point asked for. */
  readonly #otherAnswers = new Int32Array(OTHER_ANSWERS);

  constructor(source: string) {
    this.#regExp = new RegExp(`^${source}$`, 'u');
  }

  has(code: number): boolean {
    if (code >= ASCII) return this.#hasOther(code);
    const cachedAnswer = this.#ascii[code];
    if (cachedAnswer !== 0) return cachedAnswer === 1;
    const isMatch = this.#regExp.test(String.fromCharCode(code));
    this.#ascii[code] = isMatch ? 1 : 2;
    return isMatch;
  }

  #hasOther(code: number): boolean {
    const slot = code % OTHER_ANSWERS;
    const cachedEntry = this.#otherAnswers[slot] ?? 0;
    if (cachedEntry >> 1 === code) return (cachedEntry & 1) === 1;
    const isMatch = this.#regExp.test(String.fromCodePoint(code));
    this.#otherAnswers[slot] = 2 * code + (isMatch ? 1 : 0);
    return isMatch;
  }
}

/** Number of instructions of a node; infinite when it exceeds the range of numbers. */
function sizeOf(node: PatternNode): number {
  switch (node.kind) {
    case 'set':
    case 'assertion':
      return 1;
    case 'sequence':
      return node.items.reduce((sum, item) => sum + sizeOf(item), 0);
    case 'alternatives':
      return node.items.reduce((sum, item) => sum + sizeOf(item) + 2, 0);
    case 'repeat': {
      const size = sizeOf(node.item);
      // Writing out repetitions of an empty item takes time, too.
      const least = times(node.least, Math.max(size, 1));
      if (node.most === Number.POSITIVE_INFINITY) return least + size + 2;
      return least + times(node.most - node.least, size + 1);
    }
  }
}

/** The product, and 0 without repetitions: `0 * Infinity` is NaN, which would pass every limit. */
const times = (count: number, size: number): number => (count === 0 ? 0 : count * size);

function isAnchored(node: PatternNode): boolean {
  switch (node.kind) {
    case 'assertion':
      return node.assertion === '^';
    case 'sequence':
      return node.items.some(
        (item, index) => isAnchored(item) && node.items.slice(0, index).every((each) => each.kind === 'assertion'),
      );
    case 'alternatives':
      return node.items.every(isAnchored);
    case 'repeat':
      return node.least > 0 && isAnchored(node.item);
    case 'set':
      return false;
  }
}

function assertionHolds(assertion: number, previousCode: number, nextCode: number): boolean {
  switch (ASSERTIONS[assertion]) {
    case '^':
      return previousCode < 0;
    case '$':
      return nextCode < 0;
    case '\\b':
      return isWord(previousCode) !== isWord(nextCode);
    default:
      return isWord(previousCode) === isWord(nextCode);
  }
}

/** `[A-Za-z0-9_]`, the word characters of `\b` without the flag `i`. */
function isWord(code: number): boolean {
  return (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95;
}

/** A regular expression as a tree. Groups have no nodes of their own, because captures are not used. */
export type PatternNode =
  | { readonly kind: 'set'; readonly source: string }
  | { readonly kind: 'assertion'; readonly assertion: Assertion }
  | { readonly kind: 'sequence'; readonly items: readonly PatternNode[] }
  | { readonly kind: 'alternatives'; readonly items: readonly PatternNode[] }
  | { readonly kind: 'repeat'; readonly item: PatternNode; readonly least: number; readonly most: number };

export const ASSERTIONS = ['^', '$', '\\b', '\\B'] as const;
export type Assertion = (typeof ASSERTIONS)[number];

/** A pattern that cannot be used. The message names the reason and the remedy. */
export class PatternError extends Error {
  override readonly name = 'PatternError';
}

/** An escape for a property of characters, such as `\p{Lu}`. V8 computes the set of characters again for each escape that it reads. */
export const PROPERTY_ESCAPE = /\\p/gi;

const MAX_PATTERN_LENGTH = 2000;
/** Deepest nesting of groups. */
const MAX_NESTING = 64;

/**
 * Parses an ECMAScript pattern with the flag `u`. V8 checks the grammar. This parser splits what V8 accepts, and refuses what no
 * linear-time engine can match. The grammars of the runtime have a parser of their own (`parseRegex`): it needs the characters of each class as ranges,
 * and it rejects assertions in the middle, which a grammar cannot express.
 *
 * @throws PatternError
 */
export function parsePattern(source: string): PatternNode {
  if (source.length > MAX_PATTERN_LENGTH)
    throw new PatternError(
      `has ${source.length} characters; ${MAX_PATTERN_LENGTH} are allowed. Write a shorter pattern`,
    );
  try {
    new RegExp(source, 'u');
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.replace(/^.*: /s, '') : 'it does not parse';
    throw new PatternError(`is not a regular expression of ECMAScript with the flag "u": ${reason}`, { cause });
  }
  return new Parser(source).parse();
}

class Parser {
  readonly #source: string;
  #position = 0;
  #nesting = 0;

  constructor(source: string) {
    this.#source = source;
  }

  parse(): PatternNode {
    return this.#alternatives();
  }

  #alternatives(): PatternNode {
    const items = [this.#sequence()];
    while (this.#take('|')) items.push(this.#sequence());
    const [onlyItem] = items;
    return items.length === 1 && onlyItem ? onlyItem : { kind: 'alternatives', items };
  }

  #sequence(): PatternNode {
    const items: PatternNode[] = [];
    while (this.#position < this.#source.length && !this.#sees('|') && !this.#sees(')')) items.push(this.#term());
    return { kind: 'sequence', items };
  }

  #term(): PatternNode {
    for (const assertion of ASSERTIONS) {
      if (this.#take(assertion)) return { kind: 'assertion', assertion };
    }
    return this.#withQuantifier(this.#sees('(') ? this.#group() : { kind: 'set', source: this.#atom() });
  }

  #group(): PatternNode {
    if (/^\(\?<?[=!]/.test(this.#source.slice(this.#position, this.#position + 4))) {
      throw new PatternError(
        'looks ahead or behind (`(?=`, `(?!`, `(?<=`, `(?<!`), and no pattern may: matching would not take linear time. Use `not`, or `allOf` with several patterns',
      );
    }
    this.#nesting += 1;
    if (this.#nesting > MAX_NESTING) {
      throw new PatternError(`has groups nested more than ${MAX_NESTING} deep. Write a flatter pattern`);
    }
    const opening = /\((?:\?:|\?<[^>]*>|(?!\?))/y;
    opening.lastIndex = this.#position;
    const [text] = opening.exec(this.#source) ?? [];
    if (text === undefined) {
      throw new PatternError(
        'changes flags within the pattern (`(?i:`), which is not supported. Write `[aA]` for both cases',
      );
    }
    this.#position += text.length;
    const inner = this.#alternatives();
    this.#take(')');
    this.#nesting -= 1;
    return inner;
  }

  /** The source of an atom, which matches one code point. */
  #atom(): string {
    const start = this.#position;
    if (this.#sees('[')) {
      // V8 has checked that the class ends; with the flag `u`, classes do not nest.
      for (this.#position += 1; !this.#sees(']'); ) this.#position += this.#sees('\\') ? 2 : 1;
      this.#position += 1;
    } else if (this.#sees('\\')) {
      const escaped =
        /\\(?:u\{[0-9A-Fa-f]+\}|u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|[pP]\{[^}]*\}|.)/suy;
      escaped.lastIndex = start;
      const [text = ''] = escaped.exec(this.#source) ?? [];
      if (/^\\[1-9k]/.test(text)) {
        throw new PatternError(
          'refers back to a group (`\\1`, `\\k<name>`), and no pattern may: matching would not take linear time. Write the text out, or check it in the function',
        );
      }
      this.#position += text.length;
    } else {
      this.#position += String.fromCodePoint(this.#source.codePointAt(start) ?? 0).length;
    }
    return this.#source.slice(start, this.#position);
  }

  #withQuantifier(item: PatternNode): PatternNode {
    const quantifier = /(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})/y;
    quantifier.lastIndex = this.#position;
    const match = quantifier.exec(this.#source);
    if (match === null) return item;
    this.#position += match[0].length;
    // Skip the mark of a lazy quantifier, which matches the same texts.
    this.#take('?');
    const [text, least, comma, most] = match;
    if (text === '*') return { kind: 'repeat', item, least: 0, most: Number.POSITIVE_INFINITY };
    if (text === '+') return { kind: 'repeat', item, least: 1, most: Number.POSITIVE_INFINITY };
    if (text === '?') return { kind: 'repeat', item, least: 0, most: 1 };
    let maxCount = Number(least);
    if (comma !== undefined) maxCount = most === '' ? Number.POSITIVE_INFINITY : Number(most);
    // V8 limits both numbers to 2^31 - 1 before it compares them, so it accepts `a{99999999999,3000000000}`.
    if (maxCount < Number(least)) throw new PatternError('has a quantifier whose maximum is below its minimum');
    return { kind: 'repeat', item, least: Number(least), most: maxCount };
  }

  #sees(text: string): boolean {
    return this.#source.startsWith(text, this.#position);
  }

  #take(text: string): boolean {
    const isPresent = this.#sees(text);
    if (isPresent) this.#position += text.length;
    return isPresent;
  }
}
