import { parseArgs } from 'node:util';
import cliProgress from 'cli-progress';
import { fuzz } from './fuzz.ts';

const { values } = parseArgs({
  options: {
    frames: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: '1' },
  },
});
const frames = Number(values.frames);
const seed = Number(values.seed);
if (!(frames > 0 && Number.isInteger(seed))) {
  console.error('usage: node test/fuzz/main.ts [--frames 1000000] [--seed 1]');
  process.exit(2);
}
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
