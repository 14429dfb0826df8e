/** Splits a list into batches of at most `mostItems` items and at most `mostSize` in all, in order. A larger item is a batch of its own. */
export function batchesOf<T>(
  items: readonly T[],
  sizeOf: (item: T) => number,
  mostItems: number,
  mostSize: number,
): T[][] {
  const batches: T[][] = [];
  let [batch, size]: [T[], number] = [[], 0];
  for (const item of items) {
    const more = sizeOf(item);
    if (batch.length === mostItems || (batch.length > 0 && size + more > mostSize)) {
      batches.push(batch);
      [batch, size] = [[], 0];
    }
    batch.push(item);
    size += more;
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}
