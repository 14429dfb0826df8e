import { MAX_DEPTH, type StepBudget, TooDeepError } from './budget.ts';

/** Characters compared or written in the time of one step. */
const CHARACTERS_PER_STEP = 8;
/** Steps charged for each comparison of two values, and for each value written. */
const COMPARE_STEPS = 2;
const WRITE_STEPS = 4;
/** Steps charged in addition for the text of a number. */
const NUMBER_STEPS = 8;

/** True when two JSON values are equal; the order of names does not matter. @throws TooDeepError */
export function areEqual(one: unknown, other: unknown, budget: StepBudget, depth = 0): boolean {
  budget.spend(COMPARE_STEPS);
  if (depth > MAX_DEPTH) throw new TooDeepError();
  if (one === other) {
    if (typeof one === 'string') budget.spend(one.length / CHARACTERS_PER_STEP);
    return true;
  }
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false;
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((item, index) => areEqual(item, other[index], budget, depth + 1));
  }
  const names = Object.keys(one);
  budget.spend(names.length);
  if (names.length !== Object.keys(other).length) return false;
  return names.every(
    (name) =>
      Object.hasOwn(other, name) &&
      areEqual((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name], budget, depth + 1),
  );
}

/** The indexes of two equal items; null when all differ. Takes linear time in the size of the items: it writes each once. @throws TooDeepError */
export function duplicates(items: readonly unknown[], budget: StepBudget): readonly [number, number] | null {
  const indexByText = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    const text = canonical(item, budget);
    const firstIndex = indexByText.get(text);
    if (firstIndex !== undefined) return [firstIndex, index];
    indexByText.set(text, index);
  }
  return null;
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
    budget.spend(text.length / CHARACTERS_PER_STEP);
    return text;
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, budget, depth + 1)).join(',')}]`;
  const names = Object.keys(value);
  // Sorting compares each name with about log2 of their number.
  budget.spend(names.length * Math.ceil(Math.log2(names.length + 1)));
  const members = names
    .sort()
    .map(
      (name) => `${canonical(name, budget)}:${canonical((value as Record<string, unknown>)[name], budget, depth + 1)}`,
    );
  return `{${members.join(',')}}`;
}
