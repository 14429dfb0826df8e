/** `pie bench NAME` runs one benchmark, `pie bench all` runs all of them. */
import { parseArgs } from 'node:util';
import { OptionError, runSuites } from './all.ts';
import { machine } from './bench.ts';
import { BENCHES } from './benches.ts';
import { table } from './statistics.ts';
import { writeLine } from './write-line.ts';

const USAGE = 'Usage: pie bench NAME [--repetitions N] [--quick] [--json]';

const ALL_HELP = `Usage: pie bench all [SUITE…] [--repetitions N] [--quick] [--out FOLDER] [--against FILE] [--resume]

Runs the suites one after another and writes results.json with every sample and the machine's facts, report.md with tables, and images.

  -n, --repetitions N  rounds, 5 by default and 1 with --quick
  --quick         all suites in less than 15 minutes on two idle cores: the few cases that each table needs, with all sides, in one round.
                  One round has no spread and shows no aim as met. The first run on a machine also downloads, before the clock starts.
                  Without named suites or more rounds, the run ends after 15 minutes; --resume runs the rest
  --out FOLDER    where to write them, bench-results by default
  --against FILE  results.json of an earlier run to compare with: lists the figures whose ranges do not overlap
  --resume        keep the suites that ran in FOLDER's results.json (same machine and options), and run the others or the named ones`;

const help = async (): Promise<string> => `${USAGE}

${(await Promise.all([...BENCHES.values()].map((load) => load()))).map((bench) => `  ${bench.name.padEnd(12)} ${bench.summary}`).join('\n')}

  -n, --repetitions N  rounds, 5 by default and 1 with --quick; the report shows their median, least and largest value
  --quick              few cases, each with all sides, in about 25 s
  --json               one JSON object with every round's numbers
  -h, --help           with a NAME: its baseline and its rounds

\`pie bench all\` runs all benchmarks one after another and writes a report; \`pie bench all --help\` has its options.

A benchmark starts a platform of its own; stop others first. PIE_MODEL, PIE_BACKEND and PIE_BITS apply where the benchmark sets no other value.`;

async function main(): Promise<number> {
  const { values, positionals } = readFlags();
  const isAll = positionals[0] === 'all';
  const uselessFlag = (isAll ? (['json'] as const) : (['out', 'against', 'resume'] as const)).find(
    (flag) => values[flag],
  );
  if (uselessFlag !== undefined)
    throw new OptionError(
      `--${uselessFlag} has no effect ${isAll ? 'on' : 'without'} \`pie bench all\`. Leave it out.`,
    );
  if (isAll) return runAll(values, positionals.slice(1));
  const bench = await BENCHES.get(positionals[0] ?? '')?.();
  const repetitions = roundsOf(values);
  if (values.help) {
    console.log(
      bench ? `${USAGE.replace('NAME', bench.name)}\n\n${bench.help}\n\nWith --quick: ${bench.quick}` : await help(),
    );
    return 0;
  }
  if (bench === undefined && positionals[0] !== undefined) {
    console.error(`There is no benchmark "${positionals[0]}"; \`pie bench --help\` lists them.`);
    return 1;
  }
  if (bench === undefined || positionals.length !== 1 || !Number.isInteger(repetitions) || repetitions < 1) {
    console.error(await help());
    return 1;
  }
  const report = await bench.run({ repetitions, quick: values.quick, progress: (line) => console.error(line) });
  const cases = values.quick && { quick: bench.quick };
  const quickLines = values.quick ? `\nQuick run: ${bench.quick}\n` : '';
  await writeLine(
    process.stdout,
    values.json
      ? JSON.stringify({ bench: bench.name, machine: machine(), ...cases, ...report })
      : `\n${report.title}\n${machine()}\n${quickLines}\n${table(report.header, report.rows)}\n\n${report.notes.join('\n')}`,
  );
  return 0;
}

function readFlags() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        repetitions: { type: 'string', short: 'n' },
        quick: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
        out: { type: 'string' },
        against: { type: 'string' },
        resume: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new OptionError(error instanceof Error ? error.message : String(error));
  }
}

const DEFAULT_ROUNDS = 5;

function roundsOf({ repetitions, quick }: Pick<AllFlags, 'repetitions' | 'quick'>): number {
  if (repetitions !== undefined) return Number(repetitions);
  return quick ? 1 : DEFAULT_ROUNDS;
}

interface AllFlags {
  readonly repetitions?: string | undefined;
  readonly quick: boolean;
  readonly help: boolean;
  readonly out?: string | undefined;
  readonly against?: string | undefined;
  readonly resume: boolean;
}

async function runAll(
  { repetitions, help, out = 'bench-results', ...flags }: AllFlags,
  only: readonly string[],
): Promise<number> {
  const rounds = roundsOf({ repetitions, quick: flags.quick });
  if (help || !Number.isInteger(rounds) || rounds < 1) {
    (help ? console.log : console.error)(ALL_HELP);
    return help ? 0 : 1;
  }
  const progress = (line: string) => console.error(line);
  const failedCount = await runSuites({
    ...flags,
    out,
    only,
    repetitions: rounds,
    progress,
    prepare: async () => (await import('./prepare.ts')).prepare(progress),
  });
  return failedCount === 0 ? 0 : 1;
}

/** Ends the program. Its platform and engines then notice that their channel to the program has closed, and end, too. */
function fail(error: unknown): void {
  const isRefusal = error instanceof OptionError;
  console.error(isRefusal ? `error: ${error.message}` : `\nThe benchmark failed: ${describe(error)}`);
  process.exit(1);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? '' : `\nbecause: ${describe(error.cause)}`;
  return `${error.stack ?? error.message}${cause}`;
}

process.on('unhandledRejection', fail);
// Exit even when a request of a failed run is still open.
await main().then((code) => process.exit(code), fail);
