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
 * Room by room; the tests of the bundled functions share one platform, in one process; those of the whole start platforms of their own and come
 * last, one file at a time where time matters, two where it does not.
 */
const ROOMS = [
  ...['wit', 'infra', 'scheduler', 'runtime', 'gateway', 'functions/sdk'].map((room) => `${room}/**/*.test.ts`),
  'gpu-host/**/!(native*).test.ts',
];
/** They compile for a minute, on all cores: nothing that has little time runs beside them. */
const NATIVE = 'gpu-host/backends/cuda/native*.test.ts';
/** Of `test/e2e`, where what is looked at is what comes out, not when, or to the second. */
const UNHURRIED = [
  'bad-administration|bad-input|cache|chat|contract|doctor-cards|library-io',
  'lifecycle|outside|secrets|several-hosts|story|traits|worker',
].join('|');
const WHOLE = [
  ...['browser', 'chaos', 'compat', 'fuzz', 'oracles', 'telemetry'].map((folder) => `test/${folder}/**/*.test.ts`),
  `test/e2e/@(${UNHURRIED}).test.ts`,
];
const WHOLE_ALONE = [`test/e2e/!(${UNHURRIED}).test.ts`, 'test/hostile/*.test.ts'];
/** Of one file: what hangs is told, and the rest goes on. */
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
 * Each step with the minutes after which it hangs: about three times what it takes on two cores.
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
