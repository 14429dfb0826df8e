// `npm test`: the same bootstrap as `npm start`, then types, lint and every test. Plain JavaScript for Node 20 or newer.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureBubblewrap } from './bubblewrap.js';
import { ensureChromium } from './chromium.js';
import { ensureClang } from './clang.js';
import { ensureCplusplus } from './cplusplus.js';
import { ensureDependencies } from './dependencies.js';
import { ensureRedisServer } from './redis-server.js';
import { runStep } from './step.js';

/**
 * Tests of each room. The bundled functions' tests share one platform in one process. The tests of the whole platform start their own
 * platforms and run last: one file at a time when they are sensitive to timing, else two.
 */
const ROOMS = [
  ...['wit', 'infra', 'scheduler', 'runtime', 'gateway', 'functions/sdk'].map((room) => `${room}/**/*.test.ts`),
  'gpu-host/**/!(native*).test.ts',
];
/** These tests compile on all cores for a minute, so no test with a short deadline runs beside them. */
const NATIVE = 'gpu-host/backends/cuda/native*.test.ts';
/** Files of `test/e2e` that check results rather than timing, or timing to the second only. */
const UNHURRIED = [
  'bad-administration|bad-input|cache|chat|contract|doctor-cards|library-io',
  'lifecycle|outside|secrets|several-hosts|story|traits|worker',
].join('|');
const WHOLE = [
  ...['bench', 'browser', 'chaos', 'compat', 'fuzz', 'oracles', 'telemetry'].map(
    (folder) => `test/${folder}/**/*.test.ts`,
  ),
  `test/e2e/@(${UNHURRIED}).test.ts`,
];
const WHOLE_ALONE = [`test/e2e/!(${UNHURRIED}).test.ts`, 'test/hostile/*.test.ts'];
/** Limit for one file: the runner reports a file that hangs and continues with the others. */
const TIMEOUT = '--test-timeout=240000';
const FUNCTIONS = [
  '--test',
  '--test-isolation=none',
  '--test-concurrency=1',
  'functions/*.test.ts',
  'functions/!(sdk)/*.test.ts',
];

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const only = process.argv.slice(2);

/**
 * Each step with its deadline in minutes: about three times its duration on two cores.
 * @type {readonly [title: string, minutes: number, args: string[]][]}
 */
const steps =
  only.length > 0
    ? [['Tests', 30, ['--test', ...only]]]
    : [
        ['Types', 3, ['node_modules/typescript/bin/tsc', '--noEmit']],
        ['Lint', 2, ['node_modules/@biomejs/biome/bin/biome', 'check', '.']],
        ['Models', 3, ['gpu-host/models/main.ts', 'pull', 'stories15m']],
        ['Models', 3, ['gpu-host/models/main.ts', 'pull', 'minimind2-small']],
        ['Native code', 6, ['--test', '--test-concurrency=1', TIMEOUT, NATIVE]],
        ['Tests of each room', 25, ['--test', '--test-concurrency=2', TIMEOUT, ...ROOMS]],
        ['Tests of the functions', 14, FUNCTIONS],
        ['Tests of the whole', 18, ['--test', '--test-concurrency=2', TIMEOUT, ...WHOLE]],
        ['Tests of the whole, one at a time', 18, ['--test', '--test-concurrency=1', TIMEOUT, ...WHOLE_ALONE]],
      ];

try {
  const node = ensureDependencies(root);
  ensureRedisServer();
  ensureBubblewrap(root);
  ensureClang();
  ensureCplusplus();
  ensureChromium();
  for (const [title, minutes, args] of steps) {
    console.log(`\n== ${title}`);
    const { code, unfinished } = await runStep(root, node, args, AbortSignal.timeout(minutes * 60_000));
    if (unfinished !== null) {
      console.error(`\n${title}: did not end within ${minutes} minutes, and was killed. Tests that still ran:`);
      console.error(unfinished.map((file) => `  ${file}`).join('\n') || '  none');
    }
    if (code !== 0 || unfinished !== null) {
      console.error(`\n${title}: failed.`);
      process.exitCode = 1;
      break;
    }
  }
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
