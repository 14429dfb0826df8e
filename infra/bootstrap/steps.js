// The steps of `npm test`. Plain JavaScript for the Node that a fresh machine has (20 or newer).

/**
 * One command of `npm test`, run by the pinned Node.
 * @typedef {object} Step
 * @property {string} title
 * @property {number} minutes deadline, about three times its duration on two cores
 * @property {readonly string[]} args arguments of Node; for tests without the patterns
 * @property {readonly string[]} [files] patterns of test files
 */

/** The runner's own report, then the cost of each file and the skipped tests. */
const REPORTERS = [
  '--test-reporter=spec',
  '--test-reporter-destination=stdout',
  '--test-reporter=./infra/bootstrap/report.ts',
  '--test-reporter-destination=stdout',
];
/** `npm run test:all` runs long tests too: its limits are this many times longer. */
const LONGER = process.env.PIE_TEST_ALL ? 10 : 1;
/** Limit for one file: the runner reports a file that hangs and continues with the others. */
const FILE_TIMEOUT = `--test-timeout=${LONGER * 240_000}`;

/**
 * @param {number} concurrency files at a time
 * @returns {readonly string[]}
 */
const tests = (concurrency) => ['--test', `--test-concurrency=${concurrency}`, FILE_TIMEOUT, ...REPORTERS];

/** Files of `test/e2e` with hundreds of invocations at once, or whose subject is the time that things take. */
const HURRIED = 'flood|pressure|releases';
/** Folders of `test` with tests of whole platforms. */
const FOLDERS = ['bench', 'browser', 'chaos', 'compat', 'documents', 'fuzz', 'hostile', 'oracles', 'telemetry'];

/** Folders whose tests need no whole platform. */
const ROOMS = ['wit', 'infra', 'scheduler', 'runtime', 'gateway'];

/**
 * All steps, in their order. Steps with a whole platform run last.
 * @type {readonly Step[]}
 */
export const STEPS = [
  { title: 'Types', minutes: 3, args: ['node_modules/typescript/bin/tsc', '--noEmit'] },
  { title: 'Lint', minutes: 2, args: ['node_modules/@biomejs/biome/bin/biome', 'check', '.'] },
  { title: 'Models', minutes: 3, args: ['gpu-host/models/main.ts', 'pull', 'stories15m'] },
  { title: 'Models', minutes: 3, args: ['gpu-host/models/main.ts', 'pull', 'minimind2-small'] },
  {
    // These tests compile on all cores for a minute, so no test with a short deadline runs beside them.
    title: 'Native code',
    minutes: LONGER * 6,
    args: tests(1),
    files: ['gpu-host/backends/cuda/native*.test.ts'],
  },
  {
    title: 'Tests of each room',
    minutes: LONGER * 25,
    // Many of these tests wait for processes and deadlines: a third file at a time keeps two cores busy.
    args: tests(3),
    files: [
      ...ROOMS.map((room) => `${room}/**/*.test.ts`),
      'functions/sdk/**/!(core).test.ts',
      'gpu-host/**/!(native*).test.ts',
    ],
  },
  {
    // These tests share one platform in one process.
    title: 'Tests of the functions',
    minutes: LONGER * 14,
    args: [...tests(1), '--test-isolation=none'],
    files: ['functions/*.test.ts', 'functions/!(sdk)/*.test.ts', 'functions/sdk/src/core.test.ts'],
  },
  {
    title: 'Tests of the whole',
    minutes: LONGER * 18,
    args: tests(3),
    files: [...FOLDERS.map((folder) => `test/${folder}/**/*.test.ts`), `test/e2e/!(${HURRIED}).test.ts`],
  },
  {
    title: 'Tests of the whole, one at a time',
    minutes: LONGER * 18,
    args: tests(1),
    files: [`test/e2e/@(${HURRIED}).test.ts`],
  },
];

/**
 * The one step of `npm test PATTERN…`.
 * @param {readonly string[]} patterns test files, and options of Node's runner
 * @returns {readonly Step[]}
 */
export const chosenTests = (patterns) => [
  { title: 'Tests', minutes: 30, args: ['--test', ...REPORTERS], files: patterns },
];
