import { type Characters, characters, codePoint, complement, intersection } from './characters.ts';
import { tooLarge } from './error.ts';
import { type Expression, type Grammar, isNever } from './expression.ts';
import { type ByteRange, utf8 } from './utf8.ts';

const MAX_RULES = 20_000;
/** Groups inside of each other in one rule; the library's parser recurses on a stack of 64 KiB. */
const MAX_NESTING = 4;
/**
 * Repetitions of which one rule is made, to be repeated itself, in long counted ones. Each place in a counted repetition costs the library a mask
 * of its own (5 ms for characters and a vocabulary of 32,000), so there are at most 144 of them; in return tokens that reach over the end of a
 * block are tried at every step.
 */
const BLOCK = 48;
const MANY = Number.POSITIVE_INFINITY;
const ASCII = characters([0, 0x7f]);

/**
 * Writes a grammar in the library's EBNF.
 *
 * The form decides the speed by factors of a thousand: a repetition is written as one right-recursive rule whose alternatives hold the characters
 * themselves, since a rule for each character would leave nearly every token of the vocabulary to be tried at every step.
 *
 * @throws GrammarError `limit-exceeded` for more than 20,000 rules
 */
export function emit(grammar: Grammar): string {
  return new Emitter(grammar).text();
}

class Emitter {
  readonly #grammar: Grammar;
  readonly #names = new Map<string, string>();
  /** Bodies by name; a rule that is still to be written has none. */
  readonly #bodies: { readonly name: string; readonly body: string }[] = [];
  readonly #pending: (() => void)[] = [];
  /** Rules made here, by what they stand for. */
  readonly #shared = new Map<string, string>();
  #count = 0;

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
  }

  text(): string {
    this.#bodies.push({ name: 'root', body: this.#rule(this.#grammar.root) });
    for (let write = this.#pending.pop(); write !== undefined; write = this.#pending.pop()) write();
    return this.#bodies.map(({ name, body }) => `${name} ::= ${body}\n`).join('');
  }

  #rule(name: string): string {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    const made = this.#newName();
    this.#names.set(name, made);
    this.#pending.push(() => {
      const definition = this.#grammar.rules.get(name);
      this.#bodies.push({ name: made, body: definition ? this.#options(definition, 0) : '""' });
    });
    return made;
  }

  #newName(): string {
    this.#count += 1;
    if (this.#count > MAX_RULES) throw tooLarge(`the grammar takes more than ${MAX_RULES} rules; repeat and nest less`);
    return `r${this.#count}`;
  }

  /** Alternatives, without brackets around them. */
  #options(expression: Expression, nesting: number, tail = ''): string {
    const options = expression.kind === 'choice' ? expression.options : [expression];
    const written = options.flatMap((option) =>
      option.kind === 'class' ? spellings(option.set) : [this.#sequence(option, nesting)],
    );
    return written.map((option) => `${option}${tail}`).join(' | ');
  }

  #sequence(expression: Expression, nesting: number): string {
    const parts = expression.kind === 'sequence' ? expression.parts : [expression];
    return parts.map((part) => this.#part(part, nesting)).join(' ');
  }

  #part(expression: Expression, nesting: number): string {
    switch (expression.kind) {
      case 'text':
        return literal(expression.text);
      case 'class':
        return this.#class(expression.set, nesting);
      case 'rule':
        return this.#rule(expression.name);
      case 'repeat':
        return this.#repeat(expression.body, expression.min, expression.max, nesting);
      case 'choice':
      case 'sequence':
        if (nesting < MAX_NESTING) return `(${this.#options(expression, nesting + 1)})`;
        return this.#share(this.#options(expression, 0));
    }
  }

  #class(set: Characters, nesting: number): string {
    const [first, ...more] = spellings(set);
    if (more.length === 0) return first ?? '""';
    const options = [first, ...more].join(' | ');
    return nesting < MAX_NESTING ? `(${options})` : this.#share(options);
  }

  #repeat(body: Expression, min: number, max: number, nesting: number): string {
    if (isNever(body)) return '""';
    const [single, ...more] = body.kind === 'class' ? spellings(body.set) : [];
    if (single !== undefined && more.length === 0 && single.indexOf(']') === single.length - 1) {
      return this.#repeatClass(single, min, max);
    }
    const inlined = this.#leaf(body);
    if (min === 0 && max === 1) {
      if (nesting < MAX_NESTING) return `("" | ${this.#options(inlined, nesting + 1)})`;
      return this.#share(`"" | ${this.#options(inlined, 0)}`);
    }
    // Written with a mark where the next repetition goes, so that it is made once.
    const options = this.#options(inlined, 0, MARK);
    return this.#chain(options, min, max);
  }

  /** The rule for `min` to `max` repetitions. */
  #chain(options: string, min: number, max: number): string {
    const rest = max === MANY ? this.#unbounded(options) : this.#atMost(options, max - min);
    return this.#exactly(options, min, rest);
  }

  #unbounded(options: string): string {
    return this.#make(`* ${options}`, (name) => `"" | ${then(options, name)}`);
  }

  #atMost(options: string, count: number): string {
    if (count === 0) return '';
    return this.#make(`${count} ${options}`, () => {
      if (count < 2 * BLOCK) return `"" | ${then(options, this.#atMost(options, count - 1))}`;
      return `${this.#atMost(options, BLOCK - 1)} | ${this.#block(options)} ${this.#atMost(options, count - BLOCK)}`;
    });
  }

  /** `count` repetitions and then the rule `rest`, if there is one. */
  #exactly(options: string, count: number, rest: string): string {
    if (count === 0) return rest;
    return this.#make(`${count} ${rest} ${options}`, () => {
      if (count < 2 * BLOCK) return then(options, this.#exactly(options, count - 1, rest));
      return `${this.#block(options)} ${this.#exactly(options, count - BLOCK, rest)}`;
    });
  }

  #block(options: string): string {
    return this.#exactly(options, BLOCK, '');
  }

  /** A rule made once for each `key`. */
  #make(key: string, body: (name: string) => string): string {
    const known = this.#shared.get(key);
    if (known !== undefined) return known;
    const name = this.#newName();
    this.#shared.set(key, name);
    this.#bodies.push({ name, body: body(name) });
    return name;
  }

  /** The library repeats classes well itself; those with bounds are shared, since each costs it a mask for every place in them. */
  #repeatClass(set: string, min: number, max: number): string {
    if (max === MANY && min === 0) return `${set}*`;
    if (max === MANY && min === 1) return `${set}+`;
    if (max === 1) return `${set}?`;
    const bounds = max === MANY ? `{${min},}` : min === max ? `{${min}}` : `{${min},${max}}`;
    return this.#share(`${set}${bounds}`);
  }

  /** A rule with this body. */
  #share(body: string): string {
    return this.#make(body, () => body);
  }

  /** What a rule stands for if it uses no other rule and is small: its characters then stand in the repetition itself. */
  #leaf(expression: Expression): Expression {
    if (expression.kind !== 'rule') return expression;
    const definition = this.#grammar.rules.get(expression.name);
    return definition && size(definition) <= MAX_INLINED ? definition : expression;
  }
}

/** Where the next repetition goes. */
const MARK = '\u0000';

function then(options: string, next: string): string {
  return options.replaceAll(MARK, next === '' ? '' : ` ${next}`);
}

const MAX_INLINED = 40;

/** Parts of an expression; infinite with a rule in it. */
function size(expression: Expression): number {
  switch (expression.kind) {
    case 'text':
    case 'class':
      return 1;
    case 'rule':
      return Number.POSITIVE_INFINITY;
    case 'sequence':
      return expression.parts.reduce((sum, part) => sum + size(part), 0);
    case 'choice':
      return expression.options.reduce((sum, option) => sum + size(option), 0);
    case 'repeat':
      return 1 + size(expression.body);
  }
}

function literal(value: string): string {
  return `"${[...value].map((character) => escapeCode(codePoint(character))).join('')}"`;
}

/**
 * One character of a set, each way to write it as bytes. The library's classes are of bytes, not of characters (0.1.27 cuts a class of larger
 * code points to their low bytes), so characters beyond ASCII are spelled.
 */
function spellings(set: Characters): string[] {
  const ascii = intersection(set, ASCII);
  const others = utf8(intersection(set, complement(ASCII)));
  return [
    ...(ascii.length > 0 ? [`[${ascii.map(byteRange).join('')}]`] : []),
    ...others.map((bytes) => bytes.map((range) => `[${byteRange(range)}]`).join(' ')),
  ];
}

/** A single byte is written twice: a class of one would become a literal, and that is a character. */
function byteRange([from, to]: ByteRange): string {
  return from === to ? escapeCode(from).repeat(2) : `${escapeCode(from)}-${escapeCode(to)}`;
}

function escapeCode(code: number): string {
  const character = String.fromCodePoint(code);
  if (/^[A-Za-z0-9 _,:;{}()<>=+*/!?.]$/.test(character)) return character;
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
}
