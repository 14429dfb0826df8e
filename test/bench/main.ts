/** `pie bench NAME`: starts a platform and measures it; each number is compared with another number of the same run. */
import { parseArgs } from 'node:util';
import { admission } from './admission.ts';
import { batching } from './batching.ts';
import { type Bench, machine } from './bench.ts';
import { concurrency } from './concurrency.ts';
import { engine } from './engine/engine.ts';
import { flood } from './flood.ts';
import { forks } from './forks.ts';
import { generate } from './generate.ts';
import { http } from './http.ts';
import { isolation } from './isolation.ts';
import { launch } from './launch.ts';
import { prefix } from './prefix.ts';
import { pressure } from './pressure.ts';
import { soak } from './soak.ts';
import { table } from './statistics.ts';
import { tenants } from './tenants.ts';

const BENCHES: readonly Bench[] = [
  http,
  generate,
  launch,
  concurrency,
  forks,
  isolation,
  engine,
  batching,
  prefix,
  pressure,
  soak,
  admission,
  flood,
  tenants,
];

const HELP = `Usage: pie bench NAME [--repetitions N] [--quick] [--json]

${BENCHES.map((bench) => `  ${bench.name.padEnd(12)} ${bench.summary}`).join('\n')}

It starts a platform of its own (PIE_MODEL, PIE_BACKEND and PIE_BITS choose what is measured); stop others first.`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      repetitions: { type: 'string', short: 'n', default: '5' },
      quick: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const bench = BENCHES.find((each) => each.name === positionals[0]);
  const repetitions = Number(values.repetitions);
  if (values.help) {
    console.log(HELP);
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

process.exitCode = await main();
