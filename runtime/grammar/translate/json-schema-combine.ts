import { type Case, conjunction } from './json-schema-case.ts';
import { Inexpressible, type Part, type Pointer, part, type SchemaObject } from './json-schema-object.ts';

/** Maximum number of cases of one value: alternatives multiply. */
const MAX_CASES = 256;
/** Maximum pairs of cases that `product` tries. Contradictory pairs drop out, so there may be more pairs than cases. */
const MAX_PAIRS = 16 * MAX_CASES;

/** Makes the cases of schemas. */
export interface CaseMaker {
  /** Cases for the values that fit all parts. */
  of(parts: readonly Part[]): readonly Case[];
  /** Cases for the values that fit one of the parts. */
  any(parts: readonly Part[]): readonly Case[];
  /** The target of a '$ref'. */
  resolve(schema: SchemaObject, at: Pointer): Part;
}

/** Combines each case of `cases` with each of `more`. @param more is not called when there is nothing to combine */
export function product(cases: readonly Case[], more: () => readonly Case[]): readonly Case[] {
  if (cases.length === 0) return cases;
  const others = more();
  if (cases.length * others.length > MAX_PAIRS) throw new Inexpressible('too many cases');
  return limited(cases.flatMap((a) => others.flatMap((b) => conjunction(a, b) ?? [])));
}

export function limited(cases: readonly Case[]): readonly Case[] {
  if (cases.length > MAX_CASES) throw new Inexpressible(`more than ${MAX_CASES} cases`);
  return cases;
}

export function present(name: string): Case {
  return { types: new Set(['object']), required: new Set([name]) };
}

export function absent(name: string): Case {
  return property(name, part(false, `#absent ${name}`));
}

/** Objects without the property, or whose property fits `value`. */
export function property(name: string, value: Part): Case {
  const rule = { properties: new Map([[name, value]]), patterns: [], additional: undefined, declares: false };
  return { types: new Set(['object']), objects: [rule] };
}
