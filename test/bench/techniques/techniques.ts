import path from 'node:path';
import { deploySource } from '#test/harness/deploy.ts';
import { ROOT } from '#test/harness/platform.ts';
import { fastestPeers } from '../agents/peers.ts';
import { World } from '../agents/world.ts';
import type { Bench, BenchReport } from '../bench.ts';
import { inTurn } from '../rounds.ts';
import { format, formatSpread, mean, spread, spreadOver } from '../statistics.ts';
import { MODEL, type Systems, TECHNIQUES, type Technique } from './table.ts';

/** Programs that run one after another. Their mean time is the latency. */
const SEQUENTIAL_PROGRAMS = 2;
/** Programs that run at once, for the throughput. */
const AT_ONCE = 8;
/** Sequences of node-llama-cpp: at least one for each branch of the programs that run at once, so that no request waits. */
const SEQUENCES = 64;
/** The techniques of a quick run, which cover every kind of baseline. */
const QUICK = ['text-completion', 'prefix-caching', 'skeleton-of-thought', 'beam-search', 'watermarking'];
/** The function that calls the benchmark's tool server, and so needs a grant for the server's address. */
const FUNCTION_WITH_TOOL = 'agent-react';

/** One side of a technique in one round. */
interface Side {
  readonly latencyMs: number;
  readonly perSecond: number;
  /** Tokens that each program generated. */
  readonly tokens: readonly number[];
}

interface Row {
  readonly technique: string;
  readonly baseline: string;
  /** The function in each round. */
  readonly own: readonly Side[];
  /** The baseline in each round. */
  readonly other: readonly Side[];
}

/** Number of the last program. No number is used twice, so no cache has seen the prompt of a new program. */
let lastNumber = 0;

/** Every technique of Pie's Table 2 as a function, compared with the same work without the function. */
export const techniques: Bench = {
  name: 'techniques',
  summary: "latency and throughput of every technique of Pie's Table 2, over node-llama-cpp where it has the technique",
  help: `Every technique of Table 2 (Pie, SOSP '25, Figure 8) as the bundled function of that name: the time of ${SEQUENTIAL_PROGRAMS} programs one after
another, and programs a second of ${AT_ONCE} at once. The baseline is the same work over node-llama-cpp behind HTTP, as a loop of its client where
the technique has several requests: each sequence keeps what it computed, a request takes the one that has the longest beginning of its prompt,
and prompt lookup and grammars are its own. Beam search is a client loop over /v1/completions of the platform, and techniques that neither offers
are compared with a plain completion of as many tokens there. Models of a test cannot reason, so scripts give the words of thoughts, plans and
agents, and the baseline generates as many tokens. Sides take turns in going first, after one round that warms both.`,
  quick: `${QUICK.length} of ${TECHNIQUES.length} techniques: ${QUICK.join(', ')}.`,
  async run({ repetitions, quick, progress }) {
    await using world = await World.start({
      models: [MODEL],
      roundTripsMs: [0],
      programs: [],
      progress,
      peer: { sequences: SEQUENCES, guessing: AT_ONCE },
    });
    const grants = { hosts: [`127.0.0.1:${world.tool.port}`] };
    const chosen = TECHNIQUES.filter(({ name }) => !quick || QUICK.includes(name));
    for (const { name } of chosen) {
      progress(`deploying ${name}`);
      const changes = name === FUNCTION_WITH_TOOL ? { manifest: { grants } } : {};
      await deploySource(world.platform, path.join(ROOT, 'functions', name), changes);
    }
    const [completion] = TECHNIQUES;
    const peers = await fastestPeers(world.peers, (peer) => runAtOnce((n) => completion?.run(n, { world, peer })));
    const peer = peers.get(MODEL);
    if (completion === undefined || peer === undefined) throw new Error('node-llama-cpp does not run');
    const systems: Systems = { world, peer };
    const rows: Row[] = [];
    for (const [i, technique] of chosen.entries()) {
      const sides = [
        () => measure((number) => runFunction(technique, number, systems)),
        () => measure((number) => technique.run(number, systems)),
      ] as const;
      // Warm up both sides.
      for (const side of sides) await side();
      const rounds: (readonly [Side, Side])[] = [];
      for (let round = 0; round < repetitions; round++) rounds.push(await inTurn(round + i, sides));
      const row: Row = {
        technique: technique.name,
        baseline: technique.baseline,
        own: rounds.map(([own]) => own),
        other: rounds.map(([, other]) => other),
      };
      rows.push(row);
      progress(`${row.technique}: ${format(latencyOver(row).median)} over ${row.baseline}`);
    }
    return report(rows, peer.threads, repetitions);
  },
};

function report(rows: readonly Row[], threads: number, rounds: number): BenchReport {
  return {
    title: `The techniques of Pie's Table 2 as functions, ${MODEL}`,
    header: [
      'technique',
      'compared with',
      'ms a program',
      'over the baseline',
      `programs/s, ${AT_ONCE} at once`,
      'throughput over it',
      'tokens a program: function, baseline',
    ],
    rows: rows.map((row) => [
      row.technique,
      row.baseline,
      formatSpread(spread(row.own.map(({ latencyMs }) => latencyMs)), 0),
      formatSpread(latencyOver(row)),
      formatSpread(spread(row.own.map(({ perSecond }) => perSecond)), 1),
      formatSpread(throughputOver(row)),
      [row.own, row.other].map(tokensOf).join(', '),
    ]),
    notes: [
      `"Over the baseline": time of the baseline over that of the function; throughput: programs a second of the function over those of the baseline; ${spreadOver(rounds)}, ratios within a round.`,
      'Compared with node-llama-cpp behind HTTP, one request or the loop of a client; with a loop of a client over /v1/completions of the platform; or with a plain completion there of as many tokens, which shows what the technique costs or saves.',
      'Tokens: generated ones, the mean of the programs; of functions as the platform counts them (with the end of a scripted reply), of swarms and grammars those of the output; of baselines those that arrived.',
      `node-llama-cpp: ${threads} threads, the faster number, and ${SEQUENCES} sequences. Both sides are reached over the same proxy.`,
      'Agents with several calls, round trips and numbers of agents are in `agents`.',
    ],
    data: rows,
  };
}

async function measure(run: (number: number) => Promise<number>): Promise<Side> {
  const startMs = performance.now();
  const tokens: number[] = [];
  for (let i = 0; i < SEQUENTIAL_PROGRAMS; i++) tokens.push(await run(++lastNumber));
  const latencyMs = (performance.now() - startMs) / SEQUENTIAL_PROGRAMS;
  const atOnceStartMs = performance.now();
  tokens.push(...(await runAtOnce(run)));
  return { latencyMs, perSecond: (AT_ONCE * 1000) / (performance.now() - atOnceStartMs), tokens };
}

const runAtOnce = <T>(run: (number: number) => T | Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: AT_ONCE }, () => run(++lastNumber)));

/** Runs the function; returns the tokens that it generated. */
async function runFunction({ name, input, count }: Technique, number: number, systems: Systems): Promise<number> {
  const { world } = systems;
  const { output, usage } = await world.outcome<Record<string, unknown>>(0, name, input(number, systems));
  return count === undefined ? usage.outputTokens : count(output, world.tokensOf(MODEL));
}

const latencyOver = ({ own, other }: Row) =>
  spread(own.map(({ latencyMs }, i) => (other[i]?.latencyMs ?? Number.NaN) / latencyMs));

const throughputOver = ({ own, other }: Row) =>
  spread(own.map(({ perSecond }, i) => perSecond / (other[i]?.perSecond ?? Number.NaN)));

const tokensOf = (sides: readonly Side[]): string => format(mean(sides.flatMap(({ tokens }) => tokens)), 0);
