import type { Mask } from '../protocol/calls.ts';

/**
 * Encodes rows of visibility (true or 1 for a visible key) for the wire: the lengths of alternating runs, a hidden one
 * first.
 */
export function encodeMask(rows: readonly (readonly (boolean | number)[])[]): Mask {
  const runs: number[] = [];
  const rowLengths: number[] = [];
  for (const row of rows) {
    const before = runs.length;
    let visible = false;
    let length = 0;
    for (const bit of row) {
      if (Boolean(bit) !== visible) {
        runs.push(length);
        length = 0;
        visible = Boolean(bit);
      }
      length++;
    }
    runs.push(length);
    rowLengths.push(runs.length - before);
  }
  return { runs: Uint32Array.from(runs), rowLengths: Uint32Array.from(rowLengths) };
}
