import path from 'node:path';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { call, deploy, modelStats } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { newHome, Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, median, spread } from './statistics.ts';

const QUERIES = 5;
/** Times that the guest makes each graph. */
const REPEATS = 100;
const QUICK_REPEATS = 10;
const PROGRAMS = ['judge', 'multi-turn', 'tree-search', 'tree-of-thought'];
const APPLICATIONS = ['document-qa', 'advanced-rag', 'contextual-retrieval', ...PROGRAMS];

const QUICK_PROGRAMS = ['judge'];
const QUICK_APPLICATIONS = ['document-qa', ...QUICK_PROGRAMS];

/** Measurements of one application by `test/inferlets/plans.ts`. Times other than `queriesMs` are means of many repetitions. */
interface Costs {
  /** Nodes of the graph of one query. */
  readonly nodes: number;
  readonly queriesMs: readonly number[];
  /** Time to make the graph. */
  readonly makeMs: number;
  /** Time to apply all passes to the graph. */
  readonly passesMs: number;
  /** Time to find the plan; absent when the application has none. */
  readonly planMs?: number;
}

/** Places of the two runs in a round. */
const TRACED = 0;
const INTERPRETED = 1;

/** One invocation of a program. */
interface ProgramRun {
  readonly cpuMs: number;
  readonly elapsedMs: number;
  /** Host calls of the guest. */
  readonly calls: number;
  /** Batches of the device. Their number varies by one or two, because the device decodes ahead and may learn of a stop late. */
  readonly steps: number;
  /** Output of the program, as JSON. */
  readonly output: string;
}

/** The cost of making and optimising graphs, with and without plans; and the time of traced programs divided by that of interpreted ones. */
export const plans: Bench = {
  name: 'plans',
  summary: "the optimiser's share of a query with and without a plan, and traced programs over interpreted ones",
  help: `One guest contains all applications. It runs ${QUERIES} queries of each, every one on its own input. Then it makes the graph of a query,
applies all passes and finds its plan, each many times, and reports the mean time, because its clock counts in milliseconds. Shares are of the
median query. Each program then runs as a function, traced and interpreted. A round runs both on one input; they take turns in going first,
because the second one finds the prefix computed. CPU is the metered CPU time of the guest. Each repetition has two rounds.`,
  quick: `${QUICK_APPLICATIONS.length} of ${APPLICATIONS.length} applications (${QUICK_APPLICATIONS.join(', ')}), whose graphs the guest makes ${QUICK_REPEATS} times instead of ${REPEATS}.`,
  async run({ repetitions, quick, progress }) {
    const [applications, programs, times] = quick
      ? [QUICK_APPLICATIONS, QUICK_PROGRAMS, QUICK_REPEATS]
      : [APPLICATIONS, PROGRAMS, REPEATS];
    const home = await newHome();
    const encoders = path.join(home, 'tiny');
    await randomEncoder(`${encoders}-encoder`, { kind: 'embedding' }, 7);
    await randomEncoder(`${encoders}-ranker`, { kind: 'reranker' }, 7);
    await using platform = await Platform.start({ home, functions: programs, config: configuration(encoders) });
    await deploy(platform, 'plans');
    const rows: string[][] = [];
    const data: Record<string, unknown> = {};
    let query = 0;
    const shares: number[] = [];
    const planShares: number[] = [];
    const counts = { rounds: 0, otherResults: 0, moreCalls: 0, moreSteps: 0 };
    for (const name of applications) {
      const inputs = Array.from({ length: QUERIES }, () => inputOf(name, query++));
      const costs = (await call(platform, 'plans', { name, inputs, times })) as Costs;
      const queryMs = median(costs.queriesMs);
      const share = (ms: number | undefined) => (ms === undefined ? '' : percent(ms / queryMs));
      const micros = (ms: number | undefined) => (ms === undefined ? '' : format(ms * 1000, 0));
      const isProgram = PROGRAMS.includes(name);
      const rounds = isProgram ? await programRounds(platform, name, repetitions * 2, () => query++) : [];
      const ratio = (pick: (invoked: ProgramRun) => number) =>
        rounds.length === 0
          ? ''
          : formatSpread(spread(rounds.map(([traced, interpreted]) => pick(traced) / pick(interpreted))));
      const perNode = (side: typeof TRACED | typeof INTERPRETED) =>
        rounds.length === 0 ? '' : format(median(rounds.map((round) => (1000 * round[side].cpuMs) / costs.nodes)), 0);
      rows.push([
        name,
        String(costs.nodes),
        format(queryMs, 0),
        micros(costs.makeMs),
        micros(costs.passesMs),
        share(costs.makeMs + costs.passesMs),
        micros(costs.planMs),
        share(costs.planMs),
        ratio(({ elapsedMs }) => elapsedMs),
        ratio(({ calls }) => calls),
        ratio(({ steps }) => steps),
        `${perNode(TRACED)} ${perNode(INTERPRETED)}`.trim(),
      ]);
      shares.push((costs.makeMs + costs.passesMs) / queryMs);
      if (costs.planMs !== undefined) planShares.push(costs.planMs / queryMs);
      for (const [traced, interpreted] of rounds) {
        counts.rounds++;
        if (traced.output !== interpreted.output) counts.otherResults++;
        if (traced.calls > interpreted.calls) counts.moreCalls++;
        if (traced.steps > interpreted.steps) counts.moreSteps++;
      }
      data[name] = { ...costs, rounds };
      progress(`${name}: ${share(costs.makeMs + costs.passesMs)}, with a plan ${share(costs.planMs) || 'none'}`);
    }
    return {
      title: "The optimiser's cost within a guest, and programs traced over interpreted",
      header: [
        'application',
        'nodes',
        'query, ms',
        'make, µs',
        'passes, µs',
        'share',
        'plan, µs',
        'share',
        'time',
        'calls',
        'device steps',
        'CPU a node, µs',
      ],
      rows,
      notes: [
        `Making and passes take ${percent(Math.max(...shares))} of a query at most (aim 3), finding a plan ${percent(Math.max(...planShares))} (aim 0.5).`,
        `In ${counts.rounds} rounds of programs run both ways, the traced run had a different result in ${counts.otherResults}, more calls in ${counts.moreCalls} and more device steps in ${counts.moreSteps} (aim: 0 of each).`,
        'Time, calls and steps: traced over interpreted, median (min–max) of the ratios within a round.',
        "Calls: all host calls of the guest. They include one for each traced node, which gives the node's depth in the graph for batching by topology.",
        'A device step is a batch. Their number varies by one or two, because the device computes tokens ahead of a stop.',
        'CPU a node: CPU time of the whole invocation divided by the nodes of the graph; first traced, then interpreted.',
      ],
      data,
    };
  },
};

const percent = (share: number): string => `${format(100 * share)} %`;

/** Runs a program traced and interpreted in each round, after one run of each that warms up. `nextQuery` returns the number of an unused query. */
async function programRounds(
  platform: Platform,
  name: string,
  count: number,
  nextQuery: () => number,
): Promise<(readonly [traced: ProgramRun, interpreted: ProgramRun])[]> {
  const rounds: (readonly [ProgramRun, ProgramRun])[] = [];
  for (const interpret of [false, true]) await runProgram(platform, name, nextQuery(), interpret);
  for (let round = 0; round < count; round++) {
    const query = nextQuery();
    rounds.push(
      await inTurn(round, [
        () => runProgram(platform, name, query, false),
        () => runProgram(platform, name, query, true),
      ]),
    );
  }
  return rounds;
}

async function runProgram(platform: Platform, name: string, query: number, interpret: boolean): Promise<ProgramRun> {
  await modelStats(platform, { reset: true });
  const startMs = performance.now();
  const end = terminal(await invoke(platform, name, { ...inputOf(name, query), interpret }));
  if (end?.event !== 'result') throw new Error(`${name}: ${JSON.stringify(end?.data)}`);
  const elapsedMs = performance.now() - startMs;
  const output = JSON.stringify(end.data.output);
  return {
    elapsedMs,
    cpuMs: end.data.usage.cpuMs,
    calls: end.data.usage.calls,
    steps: (await modelStats(platform)).batches,
    output,
  };
}

function inputOf(name: string, query: number): object {
  const question = `Number ${query}: who went to the park with the dog?`;
  const sentence = (i: number) => `In story ${query} on day ${i} Tim went to the park with his mom and saw a big dog.`;
  const text = (sentences: number) => Array.from({ length: sentences }, (_, i) => sentence(i)).join(' ');
  switch (name) {
    case 'judge':
      return { essay: text(4), dimensions: ['clear', 'interesting', 'kind'], maxTokens: 24 };
    case 'multi-turn':
      return { questions: [question, 'What did the dog do?', 'Where is the dog now?'], maxTokens: 24 };
    case 'tree-search':
      return { question, branches: 2, maxTokens: 24 };
    case 'tree-of-thought':
      return { problem: question, steps: 2, breadth: 2, maxTokens: 16, temperature: 0 };
    default:
      return { document: text(name === 'contextual-retrieval' ? 8 : 24), question };
  }
}

const configuration = (encoders: string): string => `
[[model]]
name = "stories15m"

[[model]]
name = "tiny-encoder"
kind = "embedding"
source = "file:${encoders}-encoder"

[[model]]
name = "tiny-ranker"
kind = "reranker"
source = "file:${encoders}-ranker"
`;
