/** `npm run fuzz:components`: mutated components through build, plan and run. */
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import cliProgress from 'cli-progress';
import { readArguments, refuseArguments } from '#infra/arguments.ts';
import { Random } from '../../harness/random.ts';
import { fuzzComponents } from './fuzz-components.ts';
import { mutant } from './mutate.ts';
import { readSeeds } from './seeds.ts';

const USAGE = `Usage: npm run fuzz:components -- [options]

Mutates components and core modules, and builds, plans and runs each mutant in a throw-away process. Each must end with a typed code.

  --modules N     how many mutants (10,000)
  --seed N        of the mutations (1)
  --end-to-end M  how many of them are also deployed and invoked on a whole platform, beside a tenant that must not notice (0)
  --only INDEX    replays one mutant of the seed and prints how it ended
  --save FILE     with --only: writes the mutant's bytes, runs nothing
  --help          this text

It exits with 1 when something crashed, hung, ended without a code or was left behind.
`;

const { values } = readArguments(USAGE, {
  options: {
    modules: { type: 'string', default: '10000' },
    seed: { type: 'string', default: '1' },
    'end-to-end': { type: 'string', default: '0' },
    only: { type: 'string' },
    save: { type: 'string' },
  },
});

function wholeNumber(name: string, text: string, minimum: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < minimum)
    refuseArguments(USAGE, `--${name} ${text} is not a whole number from ${minimum} on.`);
  return value;
}

const seed = wholeNumber('seed', values.seed, 0);
const only = values.only === undefined ? null : wholeNumber('only', values.only, 0);
const modules = only === null ? wholeNumber('modules', values.modules, 1) : 1;
const endToEnd = Math.min(modules, wholeNumber('end-to-end', values['end-to-end'], 0));
if (values.save !== undefined && only === null) refuseArguments(USAGE, '--save needs --only.');

if (values.save !== undefined && only !== null) {
  const { bytes, ...about } = mutant(await readSeeds(), Random.of(seed, only));
  await writeFile(values.save, bytes);
  console.log(JSON.stringify({ ...about, bytes: bytes.length }));
} else {
  const bar = new cliProgress.SingleBar({
    format: 'mutants [{bar}] {value}/{total} {eta_formatted} left',
    stream: process.stderr,
    noTTYOutput: true,
    notTTYSchedule: 10_000,
    fps: 4,
  });
  bar.start(modules + endToEnd, 0);
  const report = await fuzzComponents({
    modules,
    seed,
    endToEnd,
    first: only ?? 0,
    workers: Math.min(modules, availableParallelism()),
    onProgress: (done) => bar.update(done),
    onOutcome: (outcome) => {
      if (only !== null) console.log(JSON.stringify(outcome, null, 2));
    },
    onFinding: (finding) => console.error(`\n${finding}`),
  });
  bar.stop();
  console.log(JSON.stringify(report, null, 2));
  process.exitCode = report.findings.length === 0 ? 0 : 1;
}
