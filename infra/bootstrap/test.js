// `npm test`: the same bootstrap as `npm start`, then types, lint and every test. Plain JavaScript for Node 20 or newer.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureChromium } from './chromium.js';
import { ensureClang } from './clang.js';
import { ensureCplusplus } from './cplusplus.js';
import { ensureDependencies } from './dependencies.js';
import { ensureRedisServer } from './redis-server.js';
import { runPinned } from './run.js';

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
  'bad-administration|bad-input|cache|chat|contract|doctor-cards|express|library-io',
  'lifecycle|outside|secrets|several-hosts|story|traits|worker',
].join('|');
const WHOLE = [
  ...['browser', 'chaos', 'compat', 'fuzz', 'oracles', 'telemetry'].map((folder) => `test/${folder}/*.test.ts`),
  `test/e2e/@(${UNHURRIED}).test.ts`,
];
const WHOLE_ALONE = [`test/e2e/!(${UNHURRIED}).test.ts`];
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

const steps =
  only.length > 0
    ? [['Tests', ['--test', ...only]]]
    : [
        ['Types', ['node_modules/typescript/bin/tsc', '--noEmit']],
        ['Lint', ['node_modules/@biomejs/biome/bin/biome', 'check', '.']],
        ['Models', ['gpu-host/models/main.ts', 'pull', 'stories15m']],
        ['Models', ['gpu-host/models/main.ts', 'pull', 'minimind2-small']],
        ['Native code', ['--test', '--test-concurrency=1', TIMEOUT, NATIVE]],
        ['Tests of each room', ['--test', '--test-concurrency=2', TIMEOUT, ...ROOMS]],
        ['Tests of the functions', FUNCTIONS],
        ['Tests of the whole', ['--test', '--test-concurrency=2', TIMEOUT, ...WHOLE]],
        ['Tests of the whole, one at a time', ['--test', '--test-concurrency=1', TIMEOUT, ...WHOLE_ALONE]],
      ];

try {
  const node = ensureDependencies(root);
  ensureRedisServer();
  ensureClang();
  ensureCplusplus();
  ensureChromium();
  for (const [title, args] of steps) {
    console.log(`\n== ${title}`);
    const code = await runPinned(root, node, args);
    if (code !== 0) {
      console.error(`\n${title}: failed.`);
      process.exitCode = 1;
      break;
    }
  }
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
