/** Steps that take a few milliseconds at most: a check of so many needs no clock. */
export const SHORT_CHECK = 20_000;
/** Steps of a check that nobody can interrupt: about a quarter of a second. */
export const LONGEST_CHECK = 2_000_000;
/** Characters that are looked at in the time of one step. */
const CHARACTERS_PER_STEP = 64;

/** Values in a JSON value, itself included; long strings count for more, and so do long names. Stops counting past `most`. */
export function sizeOf(value: unknown, most = Number.POSITIVE_INFINITY): number {
  const left: unknown[] = [value];
  let size = 0;
  while (left.length > 0 && size <= most) {
    const next = left.pop();
    size++;
    if (typeof next === 'string') size += Math.floor(next.length / CHARACTERS_PER_STEP);
    else if (Array.isArray(next)) {
      // A long list is not even looked through when it is too long already.
      if (size + next.length > most) return size + next.length;
      for (const item of next) left.push(item);
    } else if (typeof next === 'object' && next !== null) {
      for (const name in next) {
        size += Math.floor(name.length / CHARACTERS_PER_STEP);
        left.push((next as Record<string, unknown>)[name]);
        if (size + left.length > most) return size + left.length;
      }
    }
  }
  return size;
}

/**
 * Steps that holding an input against a schema may take: without references no part of a schema meets a value of the input more than once.
 * Past `LONGEST_CHECK` the number says no more than that.
 */
export function checkSize(schemaSize: number, input: unknown): number {
  return schemaSize * sizeOf(input, LONGEST_CHECK / schemaSize);
}
