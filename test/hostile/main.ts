/** `npm run hostile`: the whole corpus, or some of it, against a platform with a canary. */
import cliProgress from 'cli-progress';
import { readArguments, refuseArguments } from '#infra/arguments.ts';
import { Arena, type Report } from './arena.ts';
import { type Attack, CLASSES } from './attack.ts';
import { CORPUS } from './corpus/index.ts';

const USAGE = `Usage: npm run hostile -- [options]

Deploys and invokes components that attack the platform, while another tenant streams tokens and must not notice.

  --only TEXT    attacks whose name contains it (all)
  --class NAME   one of ${CLASSES.join(', ')}
  --list         prints the attacks and runs none
  --verbose      prints how each attack ended
  --help         this text

The report lists the attacks beside which the canary's median time per token was more than 10 % longer than alone, and its longest stretches.
It exits with 1 when an attack harmed the platform or another tenant, ended in another way than expected, or left something behind.
`;

/** Stories of the canary alone before each attack, with which those beside the attack are compared: a machine's speed changes within a run. */
const STORIES_ALONE = 8;
/** Median time per token of the canary, over the same alone, from which the report lists an attack. */
const SLOWED = 1.1;

const { values } = readArguments(USAGE, {
  options: {
    only: { type: 'string', default: '' },
    class: { type: 'string', default: '' },
    list: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
  },
});
if (values.class !== '' && !CLASSES.some((name) => name === values.class)) {
  refuseArguments(USAGE, `--class ${values.class} is no class of attacks.`);
}
const attacks = CORPUS.filter(
  ({ name, kind }) => name.includes(values.only) && (values.class === '' || kind === values.class),
);
if (attacks.length === 0) refuseArguments(USAGE, `No attack has "${values.only}" in its name.`);

if (values.list) for (const { name, ends } of attacks) console.log(`${name}: ${ends.join(' or ')}`);
else process.exitCode = await run(attacks);

async function run(chosen: readonly Attack[]): Promise<number> {
  const bar = new cliProgress.SingleBar({
    format: 'attacks [{bar}] {value}/{total} {eta_formatted} left {name}',
    stream: process.stderr,
    noTTYOutput: true,
    notTTYSchedule: 10_000,
  });
  const failures: string[] = [];
  const held: Record<string, number> = {};
  /** Times beside an attack over those alone. */
  const canaries: { name: string; overAlone: number; slowestOverAlone: number }[] = [];
  let arena = await Arena.start();
  bar.start(chosen.length, 0);
  for (const attack of chosen) {
    bar.update({ name: attack.name });
    try {
      const { medianMs: aloneMs } = await arena.alone(STORIES_ALONE);
      const from = performance.now();
      const report = await arena.attack(attack);
      const wrong = report.ends.filter((end) => !attack.ends.includes(end));
      if (wrong.length > 0) failures.push(`${attack.name}: ${wrong.join(', ')} (${report.message})`);
      for (const end of report.ends) held[end] = (held[end] ?? 0) + 1;
      const { medianMs, slowestMs } = report.canary;
      canaries.push({ name: attack.name, overAlone: medianMs / aloneMs, slowestOverAlone: slowestMs / aloneMs });
      if (values.verbose) console.log(lineOf(attack, report, aloneMs, wrong.length > 0, performance.now() - from));
    } catch (error) {
      failures.push(`${attack.name}: ${error instanceof Error ? error.message : String(error)}`);
      if (values.verbose) console.log(`HARM ${failures.at(-1)}`);
      await arena[Symbol.asyncDispose]();
      arena = await Arena.start();
    }
    bar.increment();
  }
  bar.stop();
  failures.push(...(await arena.leftBehind()).map((left) => `left behind: ${left}`));
  await arena[Symbol.asyncDispose]();
  const slowed = canaries.filter(({ overAlone }) => overAlone > SLOWED).sort((a, b) => b.overAlone - a.overAlone);
  const longest = canaries.toSorted((a, b) => b.slowestOverAlone - a.slowestOverAlone).slice(0, 5);
  console.log(JSON.stringify({ attacks: chosen.length, ends: held, slowed, longest, failures }, null, 2));
  return failures.length === 0 ? 0 : 1;
}

function lineOf(attack: Attack, { ends, message, canary }: Report, aloneMs: number, wrong: boolean, ms: number) {
  const times = `${aloneMs.toFixed(2)} → ${canary.medianMs.toFixed(2)}, at most ${canary.slowestMs.toFixed(2)} ms a token`;
  return `${wrong ? 'WRONG' : 'held '} ${attack.name}: ${ends.join(', ')} [${Math.round(ms)} ms; canary ${times}] ${message.slice(0, 160)}`;
}
