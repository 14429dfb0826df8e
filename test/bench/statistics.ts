/** Median and range of a sample. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  /** True for a sample of one value, whose noise is unknown. */
  readonly isSingle?: boolean;
}

/**
 * True when a sample of `count` values is large enough to show its q-quantile: more than 1 / (1 - q) values, 100 for a 99th percentile, so that on
 * average more than one value lies above the quantile.
 */
export const isEnoughFor = (q: number, count: number): boolean => count > Math.round(1 / (1 - q));

/** Median and range of values in any order. For an empty sample they are NaN, as are `median`, `quantile` and `mean`. */
export function spread(values: readonly number[]): Spread {
  if (values.length === 0) return { median: Number.NaN, min: Number.NaN, max: Number.NaN };
  const range = { median: median(values), min: Math.min(...values), max: Math.max(...values) };
  return values.length === 1 ? { ...range, isSingle: true } : range;
}

/** The middle value, or the mean of the two middle ones, of values in any order. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  const upper = sorted[Math.floor(half)] ?? Number.NaN;
  return Number.isInteger(half) ? ((sorted[half - 1] ?? Number.NaN) + upper) / 2 : upper;
}

/** The q-quantile of values in any order, by the nearest rank. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

export const format = (value: number, digits = 2): string => value.toFixed(digits);

/** Median and range, or a single value and its mark. `report/results.ts` reads both. */
export const formatSpread = ({ median, min, max, isSingle = false }: Spread, digits = 2): string =>
  `${format(median, digits)} (${isSingle ? SINGLE : `${format(min, digits)}–${format(max, digits)}`})`;

/** Stands in place of a range when there is one value. */
export const SINGLE = 'n = 1';

/** A note that explains the cells of `formatSpread` to readers of a table with this number of rounds. */
export const spreadOver = (rounds: number): string =>
  rounds === 1 ? 'one round, no spread' : `median (min–max) of ${rounds} rounds`;

/** Median and q-quantile. For a sample too small for that quantile, the largest value, marked `max`, takes its place; an empty sample gives ''. */
export function formatTail(values: readonly number[], digits = 1, q = 0.99): string {
  if (values.length === 0) return '';
  const tail = isEnoughFor(q, values.length)
    ? format(quantile(values, q), digits)
    : `max ${format(Math.max(...values), digits)}`;
  return `${format(median(values), digits)}, ${tail}`;
}

/** A table as text, with columns as wide as their widest cells. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return [line(header), widths.map((width) => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n');
}
