import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { deploy } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { EngineProcess } from './engine/engine-process.ts';
import { LIKE_THE_PEER } from './engine/engines.ts';
import { writeGguf } from './engine/gguf.ts';
import { installPeers } from './engine/install-peers.ts';
import { cpuOfTrees, memoryOfTrees, outsideEngine, rootsOf } from './process-usage.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, formatTail, median, type Spread, spread } from './statistics.ts';
import { inputsOf, PROMPT_TOKENS, type ReceivedStream, receiveAll } from './streams.ts';

const MODEL = 'stories15m';
const TOKENS = 120;
/** Unmeasured rounds per client count: V8 compiles the engine's module in the first seconds. */
const WARM_ROUNDS = 2;
const QUICK_WARM_ROUNDS = 1;
/** Minimum number of one-token invocations per round; subtracting their cost gives the cost of the tokens after the first. */
const LAUNCHES = 32;

/** Clients of one row, and the function that they invoke. */
interface Crowd {
  readonly clients: number;
  readonly name: 'text-completion' | 'loop';
}

const QUICK_CROWDS: readonly Crowd[] = [1, 8].map((clients) => ({ clients, name: 'text-completion' }));
const ALL_CROWDS: readonly Crowd[] = [
  ...QUICK_CROWDS,
  { clients: 32, name: 'text-completion' },
  { clients: 32, name: 'loop' },
];

/** Streams and costs of one round of clients. */
interface Round {
  readonly tokensPerSecond: number;
  readonly streams: readonly ReceivedStream[];
  /** CPU of all processes but the GPU host and the client, µs per received token. */
  readonly outsideEngineUs: number;
  /** CPU of the same processes per token after the first (a "later" token), µs. */
  readonly laterUs: number;
  /** CPU of each process per later token, the GPU host included, µs. */
  readonly laterUsOf: ReadonlyMap<string, number>;
  /** CPU of all processes but the GPU host and the client for an invocation of one token, ms. */
  readonly launchMs: number;
  /** CPU of each process for such an invocation, the GPU host included, ms. */
  readonly launchMsOf: ReadonlyMap<string, number>;
  /** Redis commands per token after the first. */
  readonly redisCommands: number;
}

interface Row extends Crowd {
  readonly tokensPerSecond: Spread;
  readonly overBareStep: Spread;
  /** Undefined in quick runs, which leave the peer out. */
  readonly overPeer: Spread | undefined;
  /** CPU of all processes but the GPU host and the client, µs a token. */
  readonly outsideEngineUs: Spread;
  readonly laterUs: Spread;
  readonly laterUsOf: Readonly<Record<string, number>>;
  readonly launchMs: Spread;
  readonly launchMsOf: Readonly<Record<string, number>>;
  readonly redisCommands: Spread;
  readonly firstMs: readonly number[];
  readonly gapMs: readonly number[];
}

/** Streams at the HTTP client, against the bare step and against node-llama-cpp in the same rounds. */
export const http: Bench = {
  name: 'http',
  help: `1, 8 and 32 HTTP clients stream ${TOKENS} tokens each and count those that arrive: of a text completion, which the platform sends, and at
32 of a loop that reads and sends each piece itself. Two baselines run in every round: the backend's bare step in a process of its own, and
node-llama-cpp on the same weights (the first run installs it outside of the clone, 1.2 GB). The three take turns in going first; ${WARM_ROUNDS}
rounds before warm them all. Reports the CPU of every process, per token and per token after the first.`,
  quick: `1 and 8 clients of the text completion, ${QUICK_WARM_ROUNDS} round instead of ${WARM_ROUNDS} to warm both sides, and no node-llama-cpp, which \`engine\` has.`,
  summary: 'tokens that HTTP clients receive, over the bare step and node-llama-cpp; CPU of every process',
  async run({ repetitions, quick, progress }) {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-http-'));
    try {
      await using stack = new AsyncDisposableStack();
      const bareEngine = stack.use(await EngineProcess.start('ours.ts', [MODEL, '32']));
      const peers = quick ? [] : await startPeers(directory, progress);
      for (const peer of peers) stack.use(peer);
      const platform = stack.use(
        await Platform.start({ functions: ['text-completion'], env: { PIE_MODEL: MODEL, ...LIKE_THE_PEER } }),
      );
      await deploy(platform, 'loop');
      const redis = connectRedis(loadConfig(platform.environment));
      stack.defer(() => redis.disconnect());
      const countCommands = async () => Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))?.[1]);

      const rows: Row[] = [];
      for (const crowd of quick ? QUICK_CROWDS : ALL_CROWDS) {
        const { clients, name } = crowd;
        const rateOf = (engine: EngineProcess) => engine.tokensPerSecond(clients, PROMPT_TOKENS, TOKENS);
        const rounds: Round[] = [];
        const bareRates: number[] = [];
        const bestPeerRates: number[] = [];
        const warmRounds = quick ? QUICK_WARM_ROUNDS : WARM_ROUNDS;
        for (let i = -warmRounds; i < repetitions; i++) {
          const [round, bareRate, peerRates] = await inTurn(
            i + warmRounds,
            [
              () => measureRound(platform, crowd, countCommands),
              () => rateOf(bareEngine),
              async () => {
                const rates: number[] = [];
                for (const each of peers) rates.push(await rateOf(each));
                return rates;
              },
            ],
            i < 0 ? 0 : undefined, // Rounds that only warm up need no pauses.
          );
          if (i < 0) continue;
          rounds.push(round);
          bareRates.push(bareRate);
          if (peerRates.length > 0) bestPeerRates.push(Math.max(...peerRates));
          progress(`${name}, ${clients} clients, round ${i + 1}: ${format(round.tokensPerSecond, 0)} tokens/s`);
        }
        const row = rowOf(crowd, rounds, bareRates, bestPeerRates);
        rows.push(row);
        progress(
          `${name}, ${clients} clients: ${format(row.tokensPerSecond.median, 0)} tokens/s, ${format(row.overBareStep.median)} of the bare step`,
        );
      }
      const memory = [...memoryOfTrees(rootsOf(platform))].map(
        ([name, bytes]) => `${name} ${format(bytes / 2 ** 20, 0)}`,
      );
      return {
        title: `Streams over HTTP, ${MODEL} at 32 bits, ${TOKENS} tokens each`,
        header: [
          'function',
          'clients',
          'tokens/s',
          'over the bare step',
          'over node-llama-cpp',
          'CPU µs a token outside the engine',
          'the same, from the first message on',
          'by process, GPU host included',
          'CPU ms of an invocation with one token',
          'by process, GPU host included',
          'Redis commands a token from the first message on',
          'first message ms p50, p99',
          'gap ms p50, p99',
        ],
        rows: rows.map((row) => [
          row.name,
          String(row.clients),
          formatSpread(row.tokensPerSecond, 0),
          formatSpread(row.overBareStep),
          row.overPeer ? formatSpread(row.overPeer) : '',
          formatSpread(row.outsideEngineUs, 0),
          formatSpread(row.laterUs, 0),
          formatParts(row.laterUsOf, 0),
          formatSpread(row.launchMs),
          formatParts(row.launchMsOf, 1),
          formatSpread(row.redisCommands),
          formatTail(row.firstMs),
          formatTail(row.gapMs),
        ]),
        notes: [
          'Clients stream at temperature 0, each with a prompt of its own, and count the tokens of the texts that arrived.',
          'Bare step: the backend called back to back in a process of its own at the same batch and context; node-llama-cpp: the best of one thread and all. Each runs in every round, and they take turns in going first; ratios are within a round.',
          'Times of 100 or fewer streams have no p99; the cell shows their maximum.',
          'CPU: user and system time of each process and its children over the round; the client and the GPU host are left out of the sum.',
          'Cost per token after the first: the cost of the round minus that of as many one-token invocations, run in parallel right after it.',
          `Proportional memory after the last round, MiB: ${memory.join(', ')}.`,
        ],
        data: rows,
      };
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

const formatParts = (parts: Readonly<Record<string, number>>, digits: number): string =>
  Object.entries(parts)
    .map(([name, value]) => `${name} ${format(value, digits)}`)
    .join(', ');

/** Starts node-llama-cpp with one thread and with one per core: on some machines, its threads contend. */
async function startPeers(directory: string, progress: (line: string) => void): Promise<EngineProcess[]> {
  await installPeers(progress);
  const model = await loadModel((await pullModel(MODEL)).directory);
  const file = path.join(directory, `${MODEL}.gguf`);
  await writeGguf(model, 32, file);
  const threads = [...new Set([1, os.availableParallelism()])];
  return Promise.all(
    threads.map((count) =>
      EngineProcess.start('llama-cpp.ts', [file, String(count), String(model.config.contextLength)]),
    ),
  );
}

async function measureRound(
  platform: Platform,
  { clients, name }: Crowd,
  countCommands: () => Promise<number>,
): Promise<Round> {
  const roots = rootsOf(platform);
  const stream = (maxTokens: number) => receiveAll(platform, inputsOf(clients, maxTokens), name);
  const commandsBefore = await countCommands();
  const before = cpuOfTrees(roots);
  const startMs = performance.now();
  const received = await stream(TOKENS);
  const elapsedMs = performance.now() - startMs;
  const after = cpuOfTrees(roots);
  const commandsAfter = await countCommands();
  // Each burst launches as many invocations as the round, of one token each.
  const bursts = Math.ceil(LAUNCHES / clients);
  for (let i = 0; i < bursts; i++) await stream(1);
  const end = cpuOfTrees(roots);
  const burstUs = outsideEngine(after, end) / bursts;
  const burstCommands = ((await countCommands()) - commandsAfter) / bursts;
  const streams = received.map((parse) => parse());
  const tokens = streams.reduce((sum, { tokens: count }) => sum + count, 0);
  const laterTokens = tokens - clients;
  return {
    tokensPerSecond: (tokens * 1000) / elapsedMs,
    streams,
    outsideEngineUs: outsideEngine(before, after) / tokens,
    laterUsOf: new Map(
      [...after].map(([name, us]) => {
        const burstUsOfProcess = ((end.get(name) ?? 0) - us) / bursts;
        return [name, (us - (before.get(name) ?? 0) - burstUsOfProcess) / laterTokens];
      }),
    ),
    launchMsOf: new Map([...end].map(([name, us]) => [name, (us - (after.get(name) ?? 0)) / bursts / 1000 / clients])),
    laterUs: (outsideEngine(before, after) - burstUs) / laterTokens,
    launchMs: burstUs / 1000 / clients,
    redisCommands: (commandsAfter - commandsBefore - burstCommands) / laterTokens,
  };
}

function rowOf(
  crowd: Crowd,
  rounds: readonly Round[],
  bareRates: readonly number[],
  peerRates: readonly number[],
): Row {
  const over = (others: readonly number[]) =>
    spread(rounds.map((round, i) => round.tokensPerSecond / (others[i] ?? Number.NaN)));
  const names = [...(rounds[0]?.laterUsOf.keys() ?? [])];
  const medians = (parts: (round: Round) => ReadonlyMap<string, number>) =>
    Object.fromEntries(names.map((name) => [name, median(rounds.map((round) => parts(round).get(name) ?? 0))]));
  const ofStreams = (values: (stream: ReceivedStream) => readonly number[]) =>
    rounds.flatMap((round) => round.streams.flatMap(values));
  return {
    ...crowd,
    tokensPerSecond: spread(rounds.map((round) => round.tokensPerSecond)),
    overBareStep: over(bareRates),
    overPeer: peerRates.length > 0 ? over(peerRates) : undefined,
    outsideEngineUs: spread(rounds.map((round) => round.outsideEngineUs)),
    laterUsOf: medians((round) => round.laterUsOf),
    launchMsOf: medians((round) => round.launchMsOf),
    laterUs: spread(rounds.map((round) => round.laterUs)),
    launchMs: spread(rounds.map((round) => round.launchMs)),
    redisCommands: spread(rounds.map((round) => round.redisCommands)),
    firstMs: ofStreams((stream) => [stream.firstMs]),
    gapMs: ofStreams((stream) => stream.gapsMs),
  };
}
