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
 * linear-time engine can match.
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
