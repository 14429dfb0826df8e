/**
 * `PIE_CASES=FOLDER node runtime/grammar/schema-bench.ts [--list]` compiles the schemas of JSONSchemaBench (github:guidance-ai/jsonschemabench) and
 * matches their instances. `FOLDER/data` holds files `jsonschemabench*.jsonl.gz`: one JSON a line, with a schema and with instances that are marked
 * valid or not. It prints the schemas that compile, the valid instances that a grammar accepts, the invalid instances that it accepts, and the times
 * of compilation. `--list` also prints each refusal, each valid instance that is not accepted, and the slowest schemas. The repository has no licence, so no
 * file of it is committed.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { serialisations, TextMatcher } from './testing/schema-suite.ts';

/** A schema of the bench with its instances. */
interface BenchSchema {
  readonly file: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

/** The outcome of one schema. */
interface BenchOutcome {
  readonly file: string;
  /** Reason for which the grammar refuses the schema, or null. */
  readonly refusal: string | null;
  /** Time to compile the schema. The elapsed time includes waits for the processor; the CPU clock ticks in milliseconds. */
  readonly elapsedMs: number;
  readonly cpuMs: number;
  readonly valid: number;
  readonly invalid: number;
  /** Valid instances whose text, as the bench writes it, the grammar does not accept. */
  readonly refused: readonly string[];
  /** Texts of invalid instances that the grammar accepts. */
  readonly wrong: readonly string[];
}

/** The schemas in the folder that `PIE_CASES` names, or the reason why there are none. */
export function benchSchemas(folder = process.env.PIE_CASES): readonly BenchSchema[] | string {
  if (folder === undefined) return 'PIE_CASES names no folder with data/jsonschemabench*.jsonl.gz';
  const data = path.join(folder, 'data');
  const files = existsSync(data) ? globSync('jsonschemabench*.jsonl.gz', { cwd: data }).sort() : [];
  if (files.length === 0) return `${data} has no file jsonschemabench*.jsonl.gz`;
  return files.flatMap((file) => {
    const lines = gunzipSync(readFileSync(path.join(data, file)))
      .toString()
      .split('\n');
    return lines.filter((line) => line !== '').map((line): BenchSchema => JSON.parse(line));
  });
}

/** Compiles a schema and matches its instances. Valid ones are matched as they are written, and invalid ones in several spellings. */
export function outcomeOf(texts: TextMatcher, { file, schema, tests }: BenchSchema): BenchOutcome {
  const counts = {
    file,
    valid: tests.filter(({ valid }) => valid).length,
    invalid: tests.filter(({ valid }) => !valid).length,
  };
  const [beganMs, cpuBeganMs] = [performance.now(), threadCpuMs()];
  const compiled = texts.compile(schema);
  const times = { elapsedMs: performance.now() - beganMs, cpuMs: threadCpuMs() - cpuBeganMs };
  if ('refusal' in compiled) return { ...counts, ...times, refusal: compiled.refusal, refused: [], wrong: [] };
  const refused: string[] = [];
  const wrong: string[] = [];
  const accepts = (text: string): boolean => {
    try {
      return compiled.accepts(text);
    } catch {
      // The text takes the matcher past one of its limits.
      return false;
    }
  };
  for (const { data, valid } of tests) {
    if (valid) {
      const text = JSON.stringify(data);
      if (!accepts(text)) refused.push(text);
    } else {
      const accepted = serialisations(data, schema).find(accepts);
      if (accepted !== undefined) wrong.push(accepted);
    }
  }
  return { ...counts, ...times, refusal: null, refused, wrong };
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function report(outcomes: readonly BenchOutcome[], isList: boolean): void {
  const sum = (count: (outcome: BenchOutcome) => number): number =>
    outcomes.reduce((all, outcome) => all + count(outcome), 0);
  const percent = (part: number, whole: number): string => `${((100 * part) / whole).toFixed(2)} %`;
  const compiled = outcomes.filter(({ refusal }) => refusal === null);
  const valid = sum((outcome) => outcome.valid);
  const accepted = compiled.reduce((all, outcome) => all + outcome.valid - outcome.refused.length, 0);
  console.log(
    `schemas compiled: ${compiled.length} of ${outcomes.length} (${percent(compiled.length, outcomes.length)})`,
  );
  console.log(`valid instances accepted: ${accepted} of ${valid} (${percent(accepted, valid)})`);
  console.log(
    `invalid instances accepted: ${sum(({ wrong }) => wrong.length)} of ${sum((outcome) => outcome.invalid)}`,
  );
  for (const [name, key] of [
    ['elapsed', 'elapsedMs'],
    ['CPU', 'cpuMs'],
  ] as const) {
    const times = outcomes.map((outcome) => outcome[key]).sort((a, b) => a - b);
    const at = (share: number): string => `${(times[Math.floor(share * (times.length - 1))] ?? 0).toFixed(1)} ms`;
    console.log(`compile, ${name}: p50 ${at(0.5)}, p99 ${at(0.99)}, most ${at(1)}`);
  }
  if (!isList) return;
  for (const { file, refusal, refused, wrong } of outcomes) {
    if (refusal !== null) console.log(`REFUSED ${file}: ${refusal}`);
    for (const text of refused) console.log(`NARROW ${file}: ${text.slice(0, 500)}`);
    for (const text of wrong) console.log(`WRONG ${file}: ${text.slice(0, 500)}`);
  }
  for (const { file, elapsedMs, cpuMs } of outcomes.toSorted((a, b) => b.cpuMs - a.cpuMs).slice(0, 30))
    console.log(`SLOW ${file}: ${elapsedMs.toFixed(0)} ms (CPU ${cpuMs.toFixed(0)} ms)`);
}

if (import.meta.main) {
  const schemas = benchSchemas();
  if (typeof schemas === 'string') {
    console.error(schemas);
    process.exitCode = 1;
  } else {
    const texts = new TextMatcher();
    report(
      schemas.map((schema) => outcomeOf(texts, schema)),
      process.argv.includes('--list'),
    );
  }
}
