// The steps of `npm test` and of `npm run test:ci`. Plain JavaScript for the Node that a fresh machine has (20 or newer).

/**
 * One command of the tests, run by the pinned Node.
 * @typedef {object} Step
 * @property {string} title
 * @property {number} minutes deadline, several times the step's duration on two quiet cores
 * @property {readonly string[]} args arguments of Node, without the patterns of test files
 * @property {readonly string[]} [files] patterns of test files
 * @property {readonly Step[]} [beside] first steps of other lanes that run at the same time; a lane is a step and the chain of its `next` steps
 * @property {Step} [next] the step that follows this one in its lane if this one passes
 */

/** The runner's own report, then the cost of each file and the skipped tests. */
const REPORTERS = [
  '--test-reporter=spec',
  '--test-reporter-destination=stdout',
  '--test-reporter=./infra/bootstrap/testing/report.ts',
  '--test-reporter-destination=stdout',
];
/** `npm run test:all` runs long tests too: its limits are this many times longer. */
const LONGER = process.env.PIE_TEST_ALL ? 10 : 1;
/**
 * Limits for one file. The runner fails a test at the timeout, and `end-hanging.ts` fails a file whose process outlives its tests. The timeout is
 * long because a file with 40 s of processor time takes minutes on a slow machine beside other files.
 */
const FILE_LIMITS = [`--test-timeout=${LONGER * 480_000}`, '--import=./infra/bootstrap/testing/end-hanging.ts'];

/**
 * @param {number} concurrency files at a time
 * @returns {readonly string[]}
 */
const tests = (concurrency) => ['--test', `--test-concurrency=${concurrency}`, ...FILE_LIMITS, ...REPORTERS];

/**
 * @param {string} model
 * @param {Step} [next]
 * @returns {Step}
 */
const pulled = (model, next) => ({
  title: `Model ${model}`,
  minutes: 5,
  args: ['gpu-host/models/main.ts', 'pull', model],
  ...(next && { next }),
});

/**
 * Arguments for tests that share one platform or the loaded sources in one process. The loaded sources and tests make its heap large, so that each
 * garbage collection takes long; with more memory for new objects, in MiB, there are fewer.
 */
const SHARED = [...tests(1), '--test-isolation=none', '--max-semi-space-size=64'];

/** Files of `test/e2e` that need no platform of their own: `npm test` runs the first ones, `npm run test:ci` the others. */
const FIRST_PLAIN = 'hostile|scripts|story|worker';
const MORE_PLAIN =
  'bad-input|concurrency|contract|hoarder|library-io|prefix|quotas|redis-tls|releases|stalled-client|traits|typed-errors|waterfall';
/** All of these, as the alternatives of a pattern. */
export const PLAIN = `${FIRST_PLAIN}|${MORE_PLAIN}`;
/** Folders of `test` with tests of whole platforms. */
const FOLDERS = ['bench', 'fuzz', 'layouts', 'oracles', 'stored-state', 'telemetry'];

/** The test file of `gpu-host/handlers/calls` that measures durations. */
const TIMED = 'run-slices';

/**
 * Files of `runtime/fleet` with sandboxes that hang. Beside other tests, such a sandbox gets too little processor time: the fleet then does not
 * blame its function, or takes a minute to find the hang.
 */
const HANGING = 'fleet|quarantine|reads-nothing';

/**
 * Test files, by folder, that change or measure their own process, keep something open, or wait for other processes most of the time: each of
 * them runs in a process of its own.
 */
const OWN_PROCESS = {
  cli: 'cli|operate|releases',
  models: 'import|lock|main|pull',
  onnx: 'library|session-options',
  protocol: 'heartbeat|security',
  fleet: 'core-watch',
  graph: 'check',
  images: 'service',
  pool: 'launcher|pool',
};

/** Files, by folder, that only `npm run test:ci` runs: they start whole platforms, compile Rust or compute for long. */
const LONG = {
  backends: 'adapter|golden|quantized',
  cli: 'platform',
  native: 'rust|rust-contract',
  runtime: 'releases',
};

/** Tests that `npm test` runs on the other backends, and `npm run test:ci` on the emulated CUDA backend, whose compilation takes over a minute. */
const ON_CUDA = [
  'gpu-host/backends/draws.test.ts',
  'gpu-host/handlers/@(computing|copying|draws|joint-batch|output-text|prefix|pressure|refusing|token-mask|usage).test.ts',
  'gpu-host/handlers/calls/@(exports|penalties|residency|scores).test.ts',
  'gpu-host/handlers/engine/fetches.test.ts',
  'gpu-host/handlers/sharing/adapter.test.ts',
];

/** Tests that share a process, so that it loads their sources once: loading takes longer than most of these tests. */
const LIGHT = [
  'functions/sdk/src/**/!(combined-options|core|device|healing|jump).test.ts',
  'gateway/@(app|browser|client|node|worker)/**/*.test.ts',
  `gateway/cli/!(${OWN_PROCESS.cli}|${LONG.cli}).test.ts`,
  'gateway/cli/backup/@(archive|snapshot).test.ts',
  'gateway/cli/@(demo|doctor|mcp)/*.test.ts',
  `gpu-host/handlers/**/!(${TIMED}).test.ts`,
  'gpu-host/@(batcher|encoders|memory|server|telemetry)/**/*.test.ts',
  `gpu-host/backends/onnx/!(${OWN_PROCESS.onnx}).test.ts`,
  `gpu-host/models/!(${OWN_PROCESS.models}).test.ts`,
  'gpu-host/models/@(convert|encoder|jinja|vision)/**/*.test.ts',
  `gpu-host/protocol/!(${OWN_PROCESS.protocol}).test.ts`,
  'index-host/@(engine|protocol|service)/*.test.ts',
  'infra/*.test.ts',
  'infra/@(container|links|package|telemetry)/*.test.ts',
  'infra/supervisor/@(*-policy|thread-times).test.ts',
  'runtime/lowering/*.test.ts',
  'wit/**/*.test.ts',
];
/** Tests of backends and of the runtime that share another process. Together they take about as long as {@link LIGHT}. */
const LIGHT_RUNTIME = [
  `gpu-host/backends/!(${LONG.backends}).test.ts`,
  'gpu-host/backends/ggml/*.test.ts',
  'runtime/build/*.test.ts',
  'runtime/build/script/*.test.ts',
  'runtime/build/wasm/*.test.ts',
  `runtime/build/graph/!(${OWN_PROCESS.graph}).test.ts`,
  `runtime/fleet/!(${HANGING}|${OWN_PROCESS.fleet}).test.ts`,
  `runtime/images/!(${OWN_PROCESS.images}).test.ts`,
  `runtime/pool/!(${OWN_PROCESS.pool}).test.ts`,
  'runtime/@(channel|grammar|guest|host|lifecycle|telemetry|texts|workers)/**/*.test.ts',
];

/**
 * The main job, the clients, the dashboard in a browser and a hostile guest, on one platform.
 * @type {Step}
 */
const ONE_PLATFORM = {
  title: 'Tests of the main job, of clients, the dashboard and a hostile guest, on one platform',
  minutes: LONGER * 30,
  args: SHARED,
  files: [
    'functions/text-completion/*.test.ts',
    'test/browser/dashboard.test.ts',
    'test/clients/*.test.ts',
    `test/e2e/@(${FIRST_PLAIN}).test.ts`,
  ],
};
/**
 * A platform whose processes are killed, and tests of runtimes. They wait most of their time.
 * @type {Step}
 */
const KILLS = {
  title: 'Tests of killed processes, and of runtimes that the scheduler knows',
  minutes: LONGER * 30,
  args: tests(1),
  files: ['test/e2e/chaos.test.ts', 'scheduler/runtimes/*.test.ts'],
};
/**
 * These tests wait most of their time: beside others they cost little, while alone they leave both cores idle.
 * @type {Step}
 */
const SCHEDULER = {
  title: 'Tests of the scheduler, in one process',
  minutes: LONGER * 20,
  args: SHARED,
  files: ['scheduler/*.test.ts', 'scheduler/!(runtimes)/**/*.test.ts'],
};

/**
 * Each lane of functions has one platform for all of its tests. The tests wait for more than half of their time, so fewer lanes would leave the
 * cores idle.
 * @type {Step}
 */
const FUNCTIONS_A_TO_E = {
  title: 'Tests of the functions, A to E, of the guest library and of old components',
  minutes: LONGER * 50,
  args: SHARED,
  files: [
    'functions/*.test.ts',
    'functions/[a-e]*/*.test.ts',
    'functions/sdk/src/**/@(combined-options|core|device|healing|jump).test.ts',
    'test/compat/*.test.ts',
  ],
};
/** @type {Step} */
const FUNCTIONS_F_TO_N = {
  title: 'Tests of the functions, F to N, and tests that share their platform',
  minutes: LONGER * 50,
  args: SHARED,
  files: ['functions/[f-n]*/*.test.ts', `test/e2e/@(${MORE_PLAIN}).test.ts`],
};
/** @type {Step} */
const FUNCTIONS_O_TO_Z = {
  title: 'Tests of the functions, O to Z, and of recipes',
  minutes: LONGER * 50,
  args: SHARED,
  files: ['functions/!([a-n]*|sdk|text-completion)/*.test.ts', 'test/documents/recipes.test.ts'],
};
/**
 * Attacks come one after the other, and their builds yield the cores to all other processes. The tests with faults wait for leases and
 * restarts most of the time.
 * @type {Step}
 */
const ATTACKS_AND_FAULTS = {
  title: 'Tests of the whole, under attack',
  minutes: LONGER * 40,
  args: tests(1),
  files: ['test/hostile/**/*.test.ts'],
  next: {
    title: 'Tests of the whole, with faults',
    minutes: LONGER * 40,
    args: tests(1),
    files: ['test/chaos/*.test.ts'],
  },
};

/** @type {readonly Step[]} */
const MODELS_AND_ENGINE = [
  pulled(
    'stories15m',
    pulled('minimind2-small', {
      // Every platform and every script of the tests uses it.
      title: 'Engine of scripts',
      minutes: 5,
      args: ['runtime/pool/engine-main.ts'],
    }),
  ),
];

/**
 * The steps of `npm test`, which people run before a commit. Lanes beside each other run at most five test processes at once, and take about the
 * same time.
 * @type {readonly Step[]}
 */
const FIRST = [
  {
    title: 'Types',
    minutes: 5,
    // Each checker computes the types of the packages anew, and the other lanes keep the other cores busy.
    args: ['node_modules/typescript/bin/tsc', '--noEmit', '--checkers', '1'],
    next: {
      // A separate compilation: the globals of browsers, such as `document`, must not exist in the other code.
      title: "Types of the dashboard's script",
      minutes: 5,
      args: ['node_modules/typescript/bin/tsc', '-p', 'gateway/browser/dashboard'],
    },
    beside: [
      { title: 'Lint', minutes: 5, args: ['node_modules/@biomejs/biome/bin/biome', 'check', '.'] },
      ...MODELS_AND_ENGINE,
    ],
  },
  {
    title: 'Tests of each room',
    minutes: LONGER * 50,
    // With more files at a time, tests with deadlines of 60 s fail on two slow cores.
    args: tests(2),
    files: [
      'gateway/*.test.ts',
      `gateway/cli/@(${OWN_PROCESS.cli}).test.ts`,
      'gateway/cli/dev/!(dev).test.ts',
      'gpu-host/*.test.ts',
      `gpu-host/backends/onnx/@(${OWN_PROCESS.onnx}).test.ts`,
      `gpu-host/models/@(${OWN_PROCESS.models}).test.ts`,
      'gpu-host/models/sources/*.test.ts',
      `gpu-host/protocol/@(${OWN_PROCESS.protocol}).test.ts`,
      'index-host/*.test.ts',
      'infra/@(bootstrap|systemd)/**/*.test.ts',
      'infra/supervisor/@(child-log|supervisor).test.ts',
      `runtime/!(${LONG.runtime}).test.ts`,
      'runtime/sandboxes/**/*.test.ts',
      'runtime/build/@(artifact|component)/*.test.ts',
      `runtime/build/native/!(${LONG.native}).test.ts`,
      `runtime/build/graph/@(${OWN_PROCESS.graph}).test.ts`,
      `runtime/fleet/@(${OWN_PROCESS.fleet}).test.ts`,
      `runtime/images/@(${OWN_PROCESS.images}).test.ts`,
      `runtime/pool/@(${OWN_PROCESS.pool}).test.ts`,
    ],
    beside: [
      {
        title: 'Tests of each room, in one process',
        minutes: LONGER * 50,
        args: SHARED,
        files: LIGHT,
      },
      {
        title: 'Tests of backends and of the runtime, in one process',
        minutes: LONGER * 50,
        args: SHARED,
        files: LIGHT_RUNTIME,
      },
    ],
  },
  {
    title: 'Tests of durations and of sandboxes that hang, two at a time',
    minutes: LONGER * 15,
    // Each of these files needs one core.
    args: tests(2),
    files: [`gpu-host/handlers/calls/${TIMED}.test.ts`, `runtime/fleet/@(${HANGING}).test.ts`],
  },
  { ...ONE_PLATFORM, beside: [KILLS, SCHEDULER] },
];

/**
 * The steps of `npm run test:ci`: all that `npm test` leaves out.
 * @type {readonly Step[]}
 */
const REST = [
  {
    title: 'Native code',
    minutes: LONGER * 20,
    // These tests compile on all cores for a minute, so no test with a short deadline runs beside them.
    args: tests(1),
    files: ['gpu-host/backends/cuda/native*.test.ts'],
    beside: MODELS_AND_ENGINE,
    next: {
      title: 'Tests of handlers on the emulated CUDA backend',
      minutes: LONGER * 20,
      args: SHARED,
      files: ON_CUDA,
      variables: { PIE_TEST_CUDA: '1' },
    },
  },
  {
    title: 'Tests of rooms that take long',
    minutes: LONGER * 50,
    args: tests(2),
    files: [
      'functions/sdk/pack/*.test.ts',
      `gateway/cli/@(${LONG.cli}).test.ts`,
      'gateway/cli/backup/backup.test.ts',
      'gateway/cli/dev/dev.test.ts',
      'gateway/local/*.test.ts',
      `gpu-host/backends/@(${LONG.backends}).test.ts`,
      'gpu-host/backends/cuda/**/!(native*).test.ts',
      `runtime/@(${LONG.runtime}).test.ts`,
      `runtime/build/native/@(${LONG.native}).test.ts`,
    ],
  },
  { ...FUNCTIONS_A_TO_E, beside: [FUNCTIONS_F_TO_N, FUNCTIONS_O_TO_Z, ATTACKS_AND_FAULTS] },
  {
    title: 'Tests of the whole',
    minutes: LONGER * 40,
    args: tests(3),
    files: [
      ...FOLDERS.map((folder) => `test/${folder}/**/*.test.ts`),
      'test/browser/!(dashboard).test.ts',
      'test/documents/!(recipes).test.ts',
      `test/e2e/!(${PLAIN}|chaos).test.ts`,
    ],
  },
];

/**
 * The steps of each command of package.json that runs tests, in their order. Each test file is in one of the two.
 * @type {{ readonly test: readonly Step[], readonly 'test:ci': readonly Step[] }}
 */
export const TIERS = { test: FIRST, 'test:ci': REST };

/**
 * The steps of a command with these arguments: those of `npm test` for none, of `npm run test:ci` for `--ci`, and of both for `--all`. Further
 * arguments are patterns of test files, or options of Node's runner: then the only step runs these tests.
 * @param {readonly string[]} args
 * @returns {readonly Step[]}
 */
export function stepsFor(args) {
  const [first = ''] = args;
  const isTier = first === '--ci' || first === '--all';
  const patterns = isTier ? args.slice(1) : args;
  if (patterns.length > 0)
    return [{ title: 'Tests', minutes: LONGER * 30, args: ['--test', ...REPORTERS], files: patterns }];
  if (!isTier) return TIERS.test;
  return first === '--ci' ? TIERS['test:ci'] : [...TIERS.test, ...TIERS['test:ci']];
}
