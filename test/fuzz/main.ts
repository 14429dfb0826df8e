import cliProgress from 'cli-progress';
import { readArguments, refuseArguments } from '#infra/arguments.ts';
import { fuzz } from './fuzz.ts';

const USAGE = `Usage: npm run fuzz -- [options]

Sends mutated frames to a GPU host, which must refuse them and serve all other connections.

  --frames N   number of frames (1,000,000)
  --seed N     of the mutations (1)
  --help       this text
`;

const { values } = readArguments(USAGE, {
  options: {
    frames: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: '1' },
  },
});
const frames = Number(values.frames);
const seed = Number(values.seed);
if (!Number.isInteger(frames) || frames <= 0)
  refuseArguments(USAGE, `--frames ${values.frames} is not a number of frames.`);
if (!Number.isInteger(seed)) refuseArguments(USAGE, `--seed ${values.seed} is not a seed.`);
const bar = new cliProgress.SingleBar({
  format: 'mutated frames [{bar}] {value}/{total} {eta_formatted} left',
  stream: process.stderr,
  noTTYOutput: true,
  notTTYSchedule: 10_000,
  fps: 4,
});
bar.start(frames, 0);
const report = await fuzz({ frames, seed, onProgress: (sent) => bar.update(sent) });
bar.update(report.frames);
bar.stop();
console.log(JSON.stringify(report, null, 2));
process.exitCode = report.problems.length === 0 ? 0 : 1;
