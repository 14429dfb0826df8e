// The steps of `npm test`. Plain JavaScript for the Node that a fresh machine has (20 or newer).

/**
 * One command of `npm test`, run by the pinned Node.
 * @typedef {object} Step
 * @property {string} title
 * @property {number} minutes deadline, about three times its duration on two cores
 * @property {readonly string[]} args arguments of Node; for tests without the patterns
 * @property {readonly string[]} [files] patterns of test files
 * @property {readonly Step[]} [beside] steps that run at the same time; their output follows that of this one
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
/**
 * Limits for one file: the runner reports a test that hangs, and a file whose tests are over but whose process does not end fails. A file
 * that takes 40 s of processor time takes minutes on a slow machine beside others.
 */
const FILE_LIMITS = [`--test-timeout=${LONGER * 480_000}`, '--import=./infra/bootstrap/end-hanging.ts'];

/**
 * @param {number} concurrency files at a time
 * @returns {readonly string[]}
 */
const tests = (concurrency) => ['--test', `--test-concurrency=${concurrency}`, ...FILE_LIMITS, ...REPORTERS];

/** Arguments for tests that share one platform in one process. */
const SHARED = [...tests(1), '--test-isolation=none'];

/** Files of `test/e2e` with hundreds of invocations at once, or whose subject is the time that things take. */
const HURRIED = 'flood|pressure|releases';
/** Files of `test/e2e` that need no platform of their own: they use that of the functions' tests. */
const PLAIN = 'bad-input|concurrency|contract|hostile|library-io|prefix|quotas|stalled-client|traits|typed-errors|worker';
/** Folders of `test` with tests of whole platforms. */
const FOLDERS = ['bench', 'browser', 'chaos', 'documents', 'fuzz', 'oracles', 'telemetry'];

/** The file of `gpu-host/handlers` whose subject is the time that things take. */
const TIMED = 'run-slices';

/**
 * Files of `runtime/fleet` with sandboxes that hang. A starved sandbox that hangs is not held against its function, and one that yields its
 * cores takes a minute to hang beside other tests.
 */
const HANGING = 'fleet|quarantine|reads-nothing';

/** Folders whose tests start no process but Redis. One process loads their sources once, which takes longer than most of these tests. */
const LIGHT = [
  'scheduler/**/*.test.ts',
  'functions/sdk/src/!(combined-options|core|healing|jump).test.ts',
  'functions/sdk/src/workflow/!(device).test.ts',
  'gateway/@(app|node)/**/*.test.ts',
  `gpu-host/handlers/!(${TIMED}).test.ts`,
  'gpu-host/@(batcher|memory)/**/*.test.ts',
  'runtime/grammar/@(matching|translate)/*.test.ts',
];

/**
 * All steps, in their order. Steps with a whole platform run last.
 * @type {readonly Step[]}
 */
export const STEPS = [
  {
    title: 'Types',
    minutes: 3,
    args: ['node_modules/typescript/bin/tsc', '--noEmit'],
    beside: [{ title: 'Lint', minutes: 3, args: ['node_modules/@biomejs/biome/bin/biome', 'check', '.'] }],
  },
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
    // With four files here and the lane beside, tests with deadlines of 60 s failed on two slow cores.
    args: tests(3),
    files: [
      ...['wit', 'infra', 'index-host', 'functions/sdk/pack'].map((folder) => `${folder}/**/*.test.ts`),
      'gateway/*.test.ts',
      'gateway/!(app|node)/**/*.test.ts',
      'gpu-host/*.test.ts',
      'gpu-host/!(batcher|handlers|memory)/**/!(native*).test.ts',
      'runtime/*.test.ts',
      'runtime/!(fleet|grammar)/**/*.test.ts',
      `runtime/fleet/!(${HANGING}).test.ts`,
      'runtime/grammar/*.test.ts',
    ],
    beside: [{ title: 'Tests of each room, in one process', minutes: LONGER * 20, args: SHARED, files: LIGHT }],
  },
  {
    title: 'Tests of durations and of sandboxes that hang, one at a time',
    minutes: LONGER * 5,
    args: tests(1),
    files: [`gpu-host/handlers/${TIMED}.test.ts`, `runtime/fleet/@(${HANGING}).test.ts`],
  },
  {
    // Two processes, each with one platform for all of its tests. One alone leaves two cores idle for almost half of the time.
    title: 'Tests of the functions, A to J, and of the library',
    minutes: LONGER * 15,
    args: SHARED,
    files: [
      'functions/*.test.ts',
      'functions/[a-j]*/*.test.ts',
      'functions/sdk/src/@(combined-options|core|healing|jump).test.ts',
      'functions/sdk/src/workflow/device.test.ts',
    ],
    beside: [
      {
        title: 'Tests of the functions, K to Z, and tests that share their platform',
        minutes: LONGER * 15,
        args: SHARED,
        files: ['functions/@([k-r]*|[t-z]*|s[!d]*)/*.test.ts', 'test/compat/*.test.ts', `test/e2e/@(${PLAIN}).test.ts`],
      },
    ],
  },
  {
    title: 'Tests of the whole',
    minutes: LONGER * 18,
    args: tests(3),
    files: [...FOLDERS.map((folder) => `test/${folder}/**/*.test.ts`), `test/e2e/!(${HURRIED}|${PLAIN}).test.ts`],
    // The longest file. In its turn it would begin last and run alone for minutes.
    beside: [
      {
        title: 'Tests of the whole, under attack',
        minutes: LONGER * 18,
        args: tests(1),
        files: ['test/hostile/*.test.ts'],
      },
    ],
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
