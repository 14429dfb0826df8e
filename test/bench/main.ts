/** `pie bench NAME`: starts a platform, measures it, and compares with a baseline of the same run where there is one. */
import { parseArgs } from 'node:util';
import { admission } from './admission.ts';
import { agents } from './agents/agents.ts';
import { stacked } from './agents/stacked.ts';
import { all } from './all.ts';
import { batching } from './batching.ts';
import { type Bench, machine } from './bench.ts';
import { calls } from './calls.ts';
import { classes } from './classes.ts';
import { concurrency } from './concurrency.ts';
import { constrained } from './constrained.ts';
import { engine } from './engine/engine.ts';
import { fairness } from './fairness.ts';
import { fleet } from './fleet/bench.ts';
import { flood } from './flood.ts';
import { forks } from './forks.ts';
import { generate } from './generate.ts';
import { http } from './http.ts';
import { idle } from './idle.ts';
import { indexSearch } from './index-search.ts';
import { isolation } from './isolation.ts';
import { launch } from './launch.ts';
import { placement } from './placement/bench.ts';
import { plans } from './plans.ts';
import { prefix } from './prefix.ts';
import { pressure } from './pressure.ts';
import { scaling } from './scaling.ts';
import { serve } from './serve.ts';
import { soak } from './soak.ts';
import { table } from './statistics.ts';
import { tax } from './tax.ts';
import { techniques } from './techniques/techniques.ts';
import { tenants } from './tenants.ts';
import { workflow } from './workflow.ts';

const BENCHES: readonly Bench[] = [
  http,
  generate,
  calls,
  tax,
  constrained,
  launch,
  concurrency,
  forks,
  isolation,
  indexSearch,
  engine,
  batching,
  prefix,
  pressure,
  scaling,
  soak,
  admission,
  fleet,
  placement,
  flood,
  classes,
  tenants,
  idle,
  workflow,
  agents,
  stacked,
  techniques,
  serve,
  fairness,
  plans,
];

const USAGE = 'Usage: pie bench NAME [--repetitions N] [--quick] [--json]';

const ALL_HELP = `Usage: pie bench all [SUITE…] [--repetitions N] [--quick] [--out FOLDER] [--against FILE] [--resume]

Runs the suites one after another (in less than 15 minutes with --quick) and writes results.json with every sample and the machine's facts,
report.md with tables, and pictures.

  --out FOLDER    where to write them, bench-results by default
  --against FILE  results.json of an earlier run to compare with: lists the figures whose ranges have nothing in common
  --resume        keep the suites that ran in FOLDER's results.json (same machine and options), and run the others or the named ones`;

const HELP = `${USAGE}

${BENCHES.map((bench) => `  ${bench.name.padEnd(12)} ${bench.summary}`).join('\n')}

  -n, --repetitions N  rounds, 5 by default; the report shows their median, least and largest value
  --quick              fewer and smaller cases, as a check that the benchmark works
  --json               one JSON object with every round's numbers
  -h, --help           with a NAME: its baseline and its rounds

\`pie bench all\` runs them one after another and writes a report; \`pie bench all --help\` has its options.

It starts a platform of its own (PIE_MODEL, PIE_BACKEND and PIE_BITS choose what is measured); stop others first.`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      repetitions: { type: 'string', short: 'n', default: '5' },
      quick: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
      out: { type: 'string', default: 'bench-results' },
      against: { type: 'string' },
      resume: { type: 'boolean', default: false },
    },
  });
  if (positionals[0] === 'all') return runAll(values, positionals.slice(1));
  const bench = BENCHES.find((each) => each.name === positionals[0]);
  const repetitions = Number(values.repetitions);
  if (values.help) {
    console.log(bench ? `${USAGE.replace('NAME', bench.name)}\n\n${bench.help}` : HELP);
    return 0;
  }
  if (bench === undefined || positionals.length !== 1 || !Number.isInteger(repetitions) || repetitions < 1) {
    console.error(HELP);
    return 1;
  }
  const report = await bench.run({ repetitions, quick: values.quick, progress: (line) => console.error(line) });
  if (values.json) console.log(JSON.stringify({ bench: bench.name, machine: machine(), ...report }));
  else
    console.log(
      `\n${report.title}\n${machine()}\n\n${table(report.header, report.rows)}\n\n${report.notes.join('\n')}`,
    );
  return 0;
}

interface AllFlags {
  readonly repetitions: string;
  readonly quick: boolean;
  readonly help: boolean;
  readonly out: string;
  readonly against?: string | undefined;
  readonly resume: boolean;
}

async function runAll({ repetitions, help, ...flags }: AllFlags, only: readonly string[]): Promise<number> {
  const rounds = Number(repetitions);
  if (help || !Number.isInteger(rounds) || rounds < 1) {
    (help ? console.log : console.error)(ALL_HELP);
    return help ? 0 : 1;
  }
  const failed = await all({ ...flags, only, repetitions: rounds, progress: (line) => console.error(line) });
  return failed === 0 ? 0 : 1;
}

/** Ends the program. Its platform and engines end with it: they notice that their channel to it has closed. */
function fail(error: unknown): void {
  console.error(`\nThe benchmark failed: ${describe(error)}`);
  process.exit(1);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? '' : `\nbecause: ${describe(error.cause)}`;
  return `${error.stack ?? error.message}${cause}`;
}

process.on('unhandledRejection', fail);
// Exits although a request of a failed run may still be open.
await main().then((code) => process.exit(code), fail);
