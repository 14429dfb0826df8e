import type { Spread } from '../statistics.ts';

/** The file that `pie bench all` writes. */
export interface Results {
  readonly format: 1;
  /** ISO 8601. */
  readonly startedAt: string;
  readonly seconds: number;
  readonly quick: boolean;
  readonly repetitions: number;
  readonly machine: Machine;
  readonly suites: readonly Suite[];
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly kernel: string;
  readonly node: string;
  /** Commit of the clone; ends with `+` when files differ from it. */
  readonly commit: string;
}

/** One benchmark of a run. */
export type Suite = SuiteRun | SuiteMissing;

export interface SuiteRun {
  readonly name: string;
  readonly outcome: 'ran';
  /** Commit of the clone when the suite ran; the suites of a resumed run may have different ones. */
  readonly commit: string;
  readonly seconds: number;
  /** Share of the processors' time that was in use in the second before the suite; runs of older versions have none. */
  readonly busyBefore?: number;
  /** Share of the suite's processor time that the machine's host took away. */
  readonly stolen: number;
  readonly title: string;
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly notes: readonly string[];
  /** The cases of a quick run; runs of older versions have none. */
  readonly quick?: string;
  /** Every round's numbers. */
  readonly data: unknown;
}

export interface SuiteMissing {
  readonly name: string;
  readonly outcome: 'failed' | 'not run';
  readonly reason: string;
}

/** One number of a report with its spread over the rounds. */
export interface Figure {
  readonly suite: string;
  /** Name of the row: its cells before the first figure. */
  readonly row: string;
  readonly column: string;
  readonly spread: Spread;
}

const CELL = /^(-?[\d.]+) \((?:(-?[\d.]+)–(-?[\d.]+)|n = 1)\)$/;

/** The spread in a cell that `formatSpread` wrote; undefined for any other cell. */
export function spreadIn(cell: string): Spread | undefined {
  const match = CELL.exec(cell);
  if (match === null) return undefined;
  const median = Number(match[1]);
  if (match[2] === undefined) return { median, min: median, max: median, isSingle: true };
  return { median, min: Number(match[2]), max: Number(match[3]) };
}

/** All figures of a suite's table. */
export function figuresOf({ name, header, rows }: Pick<SuiteRun, 'name' | 'header' | 'rows'>): Figure[] {
  const labels = labelColumns(rows);
  const figures = rows.flatMap((cells) => {
    const row = labels.map((column) => `${header[column]} ${cells[column]}`).join(', ');
    return cells.flatMap((cell, column) => {
      const spread = spreadIn(cell);
      return spread === undefined ? [] : [{ suite: name, row, column: header[column] ?? '', spread }];
    });
  });
  // Older versions wrote the value of a single round as a range with equal bounds. All ranges of such a table have equal bounds.
  if (figures.some(({ spread: { min, max } }) => min !== max)) return figures;
  return figures.map((figure) => ({ ...figure, spread: { ...figure.spread, isSingle: true } }));
}

/** The columns before the first one with a figure: they name the rows. */
export function labelColumns(rows: readonly (readonly string[])[]): number[] {
  const firstFigureColumns = rows
    .map((cells) => cells.findIndex((cell) => spreadIn(cell) !== undefined))
    .filter((at) => at >= 0);
  return Array.from(
    { length: firstFigureColumns.length === 0 ? 0 : Math.min(...firstFigureColumns) },
    (_, column) => column,
  );
}

/** Width of a figure's range over its median. */
export const noiseOf = ({ median, min, max }: Spread): number => (max - min) / Math.abs(median);

/** A figure of two runs. */
export interface Change {
  readonly figure: Figure;
  readonly before: Spread;
  /** Median now over the median before. */
  readonly ratio: number;
  /** True when the ranges of the two runs do not overlap; undefined when a run has one value, whose noise is unknown. */
  readonly beyondNoise: boolean | undefined;
}

/** Changes of the figures that both runs have, in the order of the later run. */
export function changes(now: readonly Figure[], before: readonly Figure[]): Change[] {
  const spreadsBefore = new Map(withKeys(before).map(([key, { spread }]) => [key, spread]));
  return withKeys(now).flatMap(([key, figure]) => {
    const old = spreadsBefore.get(key);
    if (old === undefined) return [];
    const { min, max, median, isSingle } = figure.spread;
    const beyondNoise = isSingle || old.isSingle ? undefined : min > old.max || max < old.min;
    return [{ figure, before: old, ratio: median / old.median, beyondNoise }];
  });
}

/** Figures with unique keys. Several columns of a table may share a name, so a key also counts the earlier figures of the same name. */
function withKeys(figures: readonly Figure[]): (readonly [key: string, figure: Figure])[] {
  const counts = new Map<string, number>();
  return figures.map((figure) => {
    const name = JSON.stringify([figure.suite, figure.row, figure.column]);
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    return [`${name} ${count}`, figure];
  });
}
