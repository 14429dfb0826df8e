import os from 'node:os';

/** One benchmark of `pie bench`. */
export interface Bench {
  readonly name: string;
  readonly summary: string;
  /** Sentences for `--help`: the measured times, their baseline, and what a round is. */
  readonly help: string;
  /** Sentences for `--help` and the report: the cases of a quick run, a part of the cases of a whole run. */
  readonly quick: string;
  run(options: BenchOptions): Promise<BenchReport>;
}

export interface BenchOptions {
  /** Rounds; the report shows their median, least and largest value. */
  readonly repetitions: number;
  /** Runs only the cases of `Bench.quick`, each on every system that the benchmark compares. */
  readonly quick: boolean;
  readonly progress: (line: string) => void;
}

/** Results of a benchmark: rows to read, and the same numbers as data. */
export interface BenchReport {
  readonly title: string;
  /** Meaning of the numbers, and the conditions held equal. */
  readonly notes: readonly string[];
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly data: unknown;
}

/** The processors, memory and Node of this machine, for reports. */
export function machine(): string {
  const cpus = os.cpus();
  return `${cpus.length} × ${cpus[0]?.model ?? 'unknown'}, ${(os.totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.versions.node}`;
}
