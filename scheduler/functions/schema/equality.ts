import { MAX_DEPTH, type StepBudget, TooDeepError } from './budget.ts';

/** Steps charged for each comparison of two values, and for each value written. */
const COMPARE_STEPS = 2;
const WRITE_STEPS = 3;
/** Steps charged in addition for the text of a number. */
const NUMBER_STEPS = 6;
/** Steps charged for each item that is looked up among the items before it, and the further ones for a number, which costs little else. */
const LOOKUP_STEPS = 4;
const NUMBER_LOOKUP_STEPS = 16;
/** Characters of the longest text that V8 hashes as a whole. It hashes longer ones by their length alone, so a map compares all of one length. */
const MAX_HASHED_CHARACTERS = 16_000;

/** True when two JSON values are equal; the order of names does not matter. @throws StepsExhausted, TooDeepError */
export function areEqual(one: unknown, other: unknown, budget: StepBudget, depth = 0): boolean {
  budget.spend(COMPARE_STEPS);
  if (depth > MAX_DEPTH) throw new TooDeepError();
  if (typeof one === 'string' && typeof other === 'string') {
    if (one.length !== other.length) return false;
    budget.spendCharacters(one.length);
    return one === other;
  }
  if (one === other) return true;
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false;
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((item, index) => areEqual(item, other[index], budget, depth + 1));
  }
  const names = budget.namesOf(one);
  if (names.length !== budget.namesOf(other).length) return false;
  return names.every(
    (name) =>
      Object.hasOwn(other, name) &&
      areEqual((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name], budget, depth + 1),
  );
}

/**
 * The indexes of two equal items; null when all differ. Takes linear time in the size of the items and their nesting: it writes each once.
 *
 * @throws StepsExhausted, TooDeepError
 */
export function duplicates(items: readonly unknown[], budget: StepBudget): readonly [number, number] | null {
  const indexByKey = new Map<string, number>();
  const numberByPart = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    budget.spend(LOOKUP_STEPS);
    if (typeof item === 'number') budget.spend(NUMBER_LOOKUP_STEPS);
    // V8 hashes numbers without a seed: a client could choose numbers of equal hash. It hashes texts with one. No canonical text begins like this.
    const key =
      typeof item === 'number' ? `n${item === 0 ? 0 : item}` : hashable(canonical(item, budget), numberByPart, budget);
    const firstIndex = indexByKey.get(key);
    if (firstIndex !== undefined) return [firstIndex, index];
    indexByKey.set(key, index);
  }
  return null;
}

/** A text that V8 hashes as a whole, in place of a canonical one: the numbers of its parts when the text is long. */
function hashable(text: string, numberByPart: Map<string, number>, budget: StepBudget): string {
  budget.spendCharacters(text.length);
  if (text.length <= MAX_HASHED_CHARACTERS) return text;
  const numbers: number[] = [];
  for (let start = 0; start < text.length; start += MAX_HASHED_CHARACTERS) {
    const part = text.slice(start, start + MAX_HASHED_CHARACTERS);
    const number = numberByPart.get(part) ?? numberByPart.size;
    numberByPart.set(part, number);
    numbers.push(number);
  }
  // No canonical text begins with this character.
  return `#${numbers.join()}`;
}

/** JSON text that equal values share: names are sorted. */
function canonical(value: unknown, budget: StepBudget, depth = 0): string {
  budget.spend(WRITE_STEPS);
  if (depth > MAX_DEPTH) throw new TooDeepError();
  // JSON text may hold numbers without a finite value, such as 1e999. `JSON.stringify` would write them as null.
  if (typeof value === 'number') {
    budget.spend(NUMBER_STEPS);
    return String(value);
  }
  if (typeof value !== 'object' || value === null) {
    const text = JSON.stringify(value);
    budget.spendCharacters(text.length);
    return text;
  }
  if (Array.isArray(value)) {
    return joined(
      '[',
      value.map((item) => canonical(item, budget, depth + 1)),
      ']',
      budget,
    );
  }
  const names = budget.namesOf(value);
  // Sorting compares each name with about log2 of their number, character by character where names begin alike.
  const characterCount = names.reduce((sum, name) => sum + name.length, 0);
  const comparisonCount = Math.ceil(Math.log2(names.length + 1));
  budget.spend(names.length * comparisonCount);
  budget.spendCharacters(characterCount * comparisonCount);
  const members = names
    .sort()
    .map(
      (name) => `${canonical(name, budget)}:${canonical((value as Record<string, unknown>)[name], budget, depth + 1)}`,
    );
  return joined('{', members, '}', budget);
}

/** Joins the texts of inner values. Each level of nesting writes them again. */
function joined(opening: string, parts: readonly string[], closing: string, budget: StepBudget): string {
  const text = `${opening}${parts.join(',')}${closing}`;
  budget.spendCharacters(text.length);
  return text;
}
