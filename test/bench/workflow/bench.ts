import { setTimeout as sleep } from 'node:timers/promises';
import cliProgress from 'cli-progress';
import { call, modelStats } from '#test/harness/deploy.ts';
import type { Bench, BenchReport } from '../bench.ts';
import { backAndForth } from '../rounds.ts';
import { format, formatSpread, isEnoughFor, mean, median, quantile, spread, spreadOver } from '../statistics.ts';
import {
  ALL_PASSES,
  APPLICATIONS,
  FIRST_COME,
  functionOf,
  MODULES,
  PARALLEL,
  type Queries,
  SINGLE_PASSES,
  type Way,
} from './applications.ts';
import { CORES, CROWDED, type Engines, PACED, SEARCH_MS, WorkflowPlatform } from './engines.ts';

const AT_ONCE = [1, 16];
/** Queries at once on the cores of this machine: fewer, because all queries share the cores. */
const AT_ONCE_ON_CORES = [1, 4];
/** Cases of a quick run, on paced engines: one whose components wait, and one whose queries are batched. */
const QUICK = [
  { application: 'search-generation', atOnce: 1 },
  { application: 'document-qa/tree', atOnce: 4 },
] as const;
/** Queries at once that warm up each application. */
const WARM_UP = 2;
/** Rounds for every five repetitions: an even number, so that of any two ways each goes before the other equally often. A round takes minutes. */
const ROUNDS = 2;
const REPETITIONS_PER_ROUNDS = 5;
/** Rounds on the cores of this machine for each round on paced engines: queries on the cores are short, and their times differ more. */
const ROUNDS_ON_CORES = 3;
/** The application with which each pass alone is measured under load, too (Ayo, Figures 10 and 11). */
const APPLICATION_UNDER_LOAD = 'advanced-rag';
/** Number of the mixed queries, which take all applications in turn. */
const MIXED_QUERIES = 16;
/** Time between the starts of two mixed queries. */
const APART_MS = 50;
/** Nodes of the graph that measures the library's own cost. */
const NODES = 1000;

/** Measurements of one application at one number of queries at once. */
interface Row {
  readonly engines: string;
  readonly application: string;
  readonly atOnce: number;
  /** Mean time of a query in each round, by way. */
  readonly times: Readonly<Record<string, readonly number[]>>;
  /** Mean steps of the model for a query in each round, by way. Unlike times, they do not depend on the machine's other work. */
  readonly steps: Readonly<Record<string, readonly number[]>>;
}

/** Workflows with their passes over the baselines of Ayo, on the same graphs. */
export const workflow: Bench = {
  name: 'workflow',
  summary:
    'workflows with all passes and with each alone, compared with one component at a time; batching by topology compared with first come, first served',
  help: `Runs each application component by component (LlamaDist in the Ayo paper), with independent components at once (LlamaDistPC), with
all passes and, on paced engines, with each pass alone; one query and ${Math.max(...AT_ONCE)} queries at once. Times are from the request to the
outcome at the HTTP client, the mean of the queries. First on engines paced by latency profiles (${PACED.description}), then on real ones
(${CORES.description}). A search of the search engine takes ${SEARCH_MS} ms. All ways answer the same queries; the prefix cache is off, so that
none finds the work of another. ${MIXED_QUERIES} mixed queries, ${APART_MS} ms apart, compare batching by topology with first come, both with all other
passes, on engines (${CROWDED.description}) whose model takes ${CROWDED.sequences} sequences a batch: without a bound no call waits for a place.
There are ${ROUNDS} rounds for every ${REPETITIONS_PER_ROUNDS} repetitions, and ${ROUNDS_ON_CORES} times as many on the cores, with at most
${Math.max(...AT_ONCE_ON_CORES)} queries at once; a round runs all ways, every other one backwards.`,
  quick: `${QUICK.map(({ application, atOnce }) => `${application} at ${atOnce} at once`).join(' and ')}, on paced engines, with all passes: without the passes alone, the cores, the mixed queries and the cost of the optimiser, which the benchmark \`plans\` measures.`,
  async run(options) {
    // A bar in a terminal, lines elsewhere.
    const bar = new cliProgress.SingleBar({
      format: 'workflows [{bar}] {value}/{total} {eta_formatted} left {what}',
      stream: process.stderr,
    });
    const progress = process.stderr.isTTY ? () => undefined : options.progress;
    bar.start(1, 0, { what: 'starting' });
    const { quick, repetitions } = options;
    const rounds = quick ? repetitions : ROUNDS * Math.ceil(repetitions / REPETITIONS_PER_ROUNDS);
    const rows: Row[] = [];
    const mixed: Mixed[] = [];
    const answers = new Answers();
    let costs: Costs | undefined;
    try {
      const roundsOn = (engines: Engines) => rounds * (engines === CORES ? ROUNDS_ON_CORES : 1);
      const mixedRounds = quick ? 0 : MIXED_ROUNDS;
      const totalSteps = [PACED, CORES].reduce((sum, each) => sum + stepsOf(each, quick).length * roundsOn(each), 0);
      bar.setTotal(totalSteps + mixedRounds);
      const measureOn = async (
        engines: Engines,
        runBefore: (started: WorkflowPlatform) => Promise<void>,
      ): Promise<void> => {
        const steps = stepsOf(engines, quick);
        const needed = quick ? steps.map(({ application }) => application) : APPLICATIONS;
        await using started = await WorkflowPlatform.start(engines, needed);
        await runBefore(started);
        // In a quick run, the unmeasured queries with which each case begins suffice as a warm-up.
        const toWarmUp = quick ? [] : steps.map((step) => step.application);
        for (const application of new Set(toWarmUp)) await warmUp(started, application);
        for (const step of steps) {
          bar.update({ what: `${engines.name}: ${step.application}, ${step.atOnce} at once` });
          const row = await measure(started, engines, step, roundsOn(engines), () => bar.increment());
          rows.push(row);
          progress(lineOf(row));
        }
        answers.add(started.queries);
      };
      await measureOn(PACED, async (started) => {
        if (!quick) costs = await costsOf(started);
      });
      if (quick) return report(rows, mixed, costs, rounds, answers);
      await measureOn(CROWDED, async (started) => {
        await mixedTimes(started, ALL_PASSES, 0);
        for (let round = 0; round < mixedRounds; round++) {
          bar.update({ what: `${MIXED_QUERIES} mixed queries` });
          const times = await measureMixed(started, round);
          mixed.push(times);
          bar.increment();
          progress(lineOfMixed(times));
        }
      });
      await measureOn(CORES, async () => undefined);
    } finally {
      bar.stop();
    }
    return report(rows, mixed, costs, rounds, answers);
  },
};

/** Rounds of mixed queries: an even number, with enough queries of each way for a 99th percentile. */
const MIXED_ROUNDS = 8;

/** Counts the queries, and those whose results differed between ways. */
class Answers {
  queries = 0;
  differing = 0;

  add({ results, differing }: Queries): void {
    this.queries += results.size;
    this.differing += differing.size;
  }
}

interface Step {
  readonly application: string;
  readonly atOnce: number;
  readonly ways: readonly Way[];
}

/** The cases to measure on these engines. Passes are measured alone only on paced engines, which do not compete for processors. */
function stepsOf(engines: Engines, quick: boolean): Step[] {
  if (engines === CROWDED) return [];
  if (quick) return engines === PACED ? QUICK.map((one) => ({ ...one, ways: [MODULES, PARALLEL, ALL_PASSES] })) : [];
  return APPLICATIONS.flatMap((application) =>
    (engines === PACED ? AT_ONCE : AT_ONCE_ON_CORES).map((atOnce) => {
      const hasSinglePasses = engines === PACED && (atOnce === 1 || application === APPLICATION_UNDER_LOAD);
      return { application, atOnce, ways: [MODULES, PARALLEL, ALL_PASSES, ...(hasSinglePasses ? SINGLE_PASSES : [])] };
    }),
  );
}

async function measure(
  { platform, queries }: WorkflowPlatform,
  engines: Engines,
  { application, atOnce, ways }: Step,
  rounds: number,
  onRoundDone: () => void,
): Promise<Row> {
  const emptyLists = (): Record<string, number[]> => Object.fromEntries(ways.map(({ name }) => [name, []]));
  const [times, steps] = [emptyLists(), emptyLists()];
  // Makes as many instances as the first way needs, and loads the tokenizers, which a worker forgets while other applications are measured.
  await queries.timesAtOnce(application, ALL_PASSES, atOnce, 0);
  for (let round = 0; round < rounds; round++) {
    const first = round * atOnce;
    const sides = ways.map((way) => async () => {
      await modelStats(platform, { reset: true });
      times[way.name]?.push(mean(await queries.timesAtOnce(application, way, atOnce, first)));
      steps[way.name]?.push((await modelStats(platform)).batches / atOnce);
    });
    await backAndForth(round, sides);
    onRoundDone();
  }
  return { engines: engines.name, application, atOnce, times, steps };
}

/** Sends queries that make instances and warm up the engines. */
async function warmUp({ queries }: WorkflowPlatform, application: string): Promise<void> {
  for (const way of [MODULES, ALL_PASSES]) await queries.timesAtOnce(application, way, WARM_UP, 0);
}

/** Times of the mixed queries of a round, by way. */
interface Mixed {
  readonly firstCome: readonly number[];
  readonly topology: readonly number[];
}

function mixedTimes({ queries }: WorkflowPlatform, way: Way, round: number): Promise<number[]> {
  return Promise.all(
    Array.from({ length: MIXED_QUERIES }, async (_, i) => {
      await sleep(i * APART_MS);
      return queries.time(APPLICATIONS[i % APPLICATIONS.length] as string, way, round * MIXED_QUERIES + i);
    }),
  );
}

async function measureMixed(started: WorkflowPlatform, round: number): Promise<Mixed> {
  const side = (way: Way) => () => mixedTimes(started, way, round);
  const [firstCome = [], topology = []] = await backAndForth(round, [side(FIRST_COME), side(ALL_PASSES)]);
  return { firstCome, topology };
}

function lineOf({ engines, application, atOnce, times }: Row): string {
  const medians = Object.entries(times).map(([way, own]) => `${way} ${format(spread(own).median, 0)} ms`);
  return `${engines}, ${application}, ${atOnce} at once: ${medians.join(', ')}`;
}

function lineOfMixed({ firstCome, topology }: Mixed): string {
  const [firstComeText, topologyText] = [firstCome, topology].map(
    (own) => `mean ${format(mean(own), 0)} ms, slowest ${format(Math.max(...own), 0)}`,
  );
  return `${MIXED_QUERIES} mixed queries: first come ${firstComeText}; topology ${topologyText}`;
}

interface Costs {
  /** Costs by application. */
  readonly applications: Readonly<Record<string, { nodes: number; makeMs: number; optimiseMs: number }>>;
  /** The library's own cost of a node, measured on a graph of nodes that do nothing. */
  readonly empty: { readonly make: number; readonly optimise: number; readonly makeAndRun: number };
}

async function costsOf(started: WorkflowPlatform): Promise<Costs> {
  await started.deploy('functions/sdk/fixtures/workflow.ts', 'empty-workflow');
  await started.deploy('test/bench/workflow/optimiser-cost.ts', 'optimiser-cost');
  const inputs = Object.fromEntries(APPLICATIONS.map(functionOf).map((name) => [name, started.queries.input(name, 0)]));
  const twice = async (name: string, input: object) => {
    await call(started.platform, name, input);
    return call(started.platform, name, input);
  };
  return {
    applications: await twice('optimiser-cost', inputs),
    empty: (await twice('empty-workflow', { nodes: NODES })).times,
  };
}

function report(
  rows: readonly Row[],
  mixed: readonly Mixed[],
  costs: Costs | undefined,
  rounds: number,
  { queries, differing }: Answers,
): BenchReport {
  const gain = ({ times }: Row, base: Way, way: Way) =>
    spread((times[base.name] ?? []).map((ms, i) => ms / (times[way.name]?.[i] ?? Number.NaN)));
  const cell = (row: Row, way: Way) => (row.times[way.name] ? formatSpread(gain(row, MODULES, way)) : '');
  const gains = (engines: Engines, base: Way) =>
    rows
      .filter((row) => row.engines === engines.name)
      .map((row) => ({ row, gain: gain(row, base, ALL_PASSES).median }));
  const summary = (engines: Engines, base: Way) => {
    const all = gains(engines, base);
    const byFunction = Map.groupBy(all, ({ row }) => functionOf(row.application));
    const average = mean([...byFunction.values()].map((own) => mean(own.map(({ gain }) => gain))));
    const least = Math.min(...all.map(({ gain }) => gain));
    return `${engines.name}, all passes over ${base.name}: ${format(average)} on average of ${byFunction.size} applications, ${format(least)} at least`;
  };
  const stepsOfQuery = rows
    .filter((row) => row.engines === PACED.name && row.atOnce === 1)
    .map(({ application, steps }) => {
      const counts = [MODULES, PARALLEL, ALL_PASSES].map(({ name }) => format(mean(steps[name] ?? []), 1));
      return `${application} ${counts.join(', ')}`;
    });
  const hasSinglePasses = rows.some(({ times }) => SINGLE_PASSES.some(({ name }) => times[name] !== undefined));
  const comparedWays = [PARALLEL, ALL_PASSES, ...(hasSinglePasses ? SINGLE_PASSES : [])];
  return {
    title: 'Workflow latency, component by component, divided by that with optimiser passes',
    header: ['engines', 'application', 'at once', 'modules, ms', ...comparedWays.map(({ name }) => name)],
    rows: rows.map((row) => [
      row.engines,
      row.application,
      String(row.atOnce),
      formatSpread(spread(row.times[MODULES.name] ?? []), 0),
      ...comparedWays.map((way) => cell(row, way)),
    ]),
    notes: [
      'Median (min–max) of the ratios within a round.',
      ...(costs === undefined
        ? []
        : [
            `${summary(PACED, MODULES)} (aim 1.4, 0.98).`,
            `${summary(PACED, PARALLEL)} (aim 1.15).`,
            `${summary(CORES, MODULES)} (aim 1.1, 0.98).`,
          ]),
      `Steps of the paced model for a query, ${[MODULES, PARALLEL, ALL_PASSES].map(({ name }) => name).join(', ')}: ${stepsOfQuery.join('; ')}.`,
      ...(mixed.length > 0 ? [mixedNote(mixed)] : []),
      ...(costs === undefined ? [] : costNotes(costs, rows)),
      `${differing} of ${queries} queries had another result in one way than in the first one (aim 0).`,
      `${spreadOver(rounds)} on paced engines: ${PACED.description}. ${SEARCH_MS} ms for a search.`,
      ...(costs === undefined
        ? []
        : [
            `${rounds * ROUNDS_ON_CORES} rounds on cores: ${CORES.description}. ${mixed.length} rounds of mixed queries on crowded engines: ${CROWDED.description}.`,
          ]),
    ],
    data: { rows, mixed, costs },
  };
}

function mixedNote(mixed: readonly Mixed[]): string {
  const firstComeMs = mixed.flatMap(({ firstCome }) => firstCome);
  const topologyMs = mixed.flatMap(({ topology }) => topology);
  const means = spread(mixed.map(({ firstCome, topology }) => mean(firstCome) / mean(topology)));
  const times = (own: readonly number[]) => `${format(median(own), 0)} and ${format(Math.max(...own), 0)}`;
  return [
    `${MIXED_QUERIES} mixed queries ${APART_MS} ms apart, crowded, ${CROWDED.sequences} sequences a batch.`,
    `Mean latency, first come over topology: ${formatSpread(means)} (aim 1.15).`,
    `Latency in ms, median and maximum: first come ${times(firstComeMs)}, topology ${times(topologyMs)}.`,
    ...(isEnoughFor(0.99, topologyMs.length)
      ? [
          `99th percentile, topology over first come: ${format(quantile(topologyMs, 0.99) / quantile(firstComeMs, 0.99))} (aim at most 1.05).`,
        ]
      : []),
  ].join(' ');
}

function costNotes({ applications, empty }: Costs, rows: readonly Row[]): string[] {
  const share = Object.entries(applications).map(([application, { nodes, makeMs, optimiseMs }]) => {
    const row = rows.find(
      (each) => each.application === application && each.atOnce === 1 && each.engines === PACED.name,
    );
    const queryMs = spread(row?.times[ALL_PASSES.name] ?? []).median;
    return `${application} ${format(optimiseMs, 1)} ms for ${nodes} nodes (${format((100 * optimiseMs) / queryMs)} %), made in ${format(makeMs, 1)} ms`;
  });
  const micros = (ms: number) => `${format((ms * 1000) / NODES, 0)} µs`;
  const { make, optimise, makeAndRun } = empty;
  return [
    `All passes, and their share of a query on paced engines (aim 3 %): ${share.join('; ')}.`,
    `A node without work costs the guest ${micros(make)} to make and check, ${micros(optimise)} for all passes, ${micros(makeAndRun - make)} to run.`,
  ];
}
