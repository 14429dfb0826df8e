import os from 'node:os';

/** One benchmark of `pie bench`. */
export interface Bench {
  readonly name: string;
  readonly summary: string;
  run(options: BenchOptions): Promise<BenchReport>;
}

export interface BenchOptions {
  /** Repetitions, of which the median is told. */
  readonly repetitions: number;
  /** Fewer and smaller cases, to see that everything runs. */
  readonly quick: boolean;
  readonly progress: (line: string) => void;
}

/** What a benchmark found: rows for people, the same numbers for programs. */
export interface BenchReport {
  readonly title: string;
  /** What the numbers mean, and what was held equal. */
  readonly notes: readonly string[];
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly data: unknown;
}

export function machine(): string {
  const cpus = os.cpus();
  return `${cpus.length} × ${cpus[0]?.model ?? 'unknown'}, ${(os.totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.versions.node}`;
}
