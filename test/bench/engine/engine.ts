import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import type { Bench, BenchOptions, BenchReport } from '../bench.ts';
import { format, formatSpread, type Spread, spread } from '../statistics.ts';
import { type Comparison, compare, type TokenCheck } from './compare.ts';
import { EngineProcess } from './engine-process.ts';
import type { Measurement, Task } from './engines.ts';
import { type MachineRates, measureMachine } from './floor.ts';
import { type GgufBits, writeGguf } from './gguf.ts';
import { installPeers } from './install-peers.ts';
import { measureThroughPlatform } from './platform-rounds.ts';

const BITS: readonly GgufBits[] = [32, 8, 4];
const QUICK_BITS: readonly GgufBits[] = [32];
const BATCHES = [1, 8, 32, 128];
const QUICK_BATCHES = [1, 32];
const THREADS = os.availableParallelism();
const CLIENTS = 32;
const CLIENT_TOKENS = 96;

/** Our engine against node-llama-cpp on the same weights, against transformers.js, and against the floor of the machine. */
export const engine: Bench = {
  name: 'engine',
  summary: 'prefill and decode against node-llama-cpp, transformers.js and the floor',
  help: `Runs the same prefill and decode tasks on our engine and on a peer, each in a process of its own: node-llama-cpp with the same weights
as GGUF at 32, 8 and 4 bits, and transformers.js with its published 8-bit export. Compares the greedy tokens of ours and node-llama-cpp's,
which must be equal at 32 bits. The floor is the machine's measured bandwidth and matrix peak. Last, ${CLIENTS} streams through the whole
platform against node-llama-cpp. In a round every side runs once, and the sides take turns in going first; one more round before warms all.
The first run installs both peers outside of the clone (1.2 GB).`,
  quick: `node-llama-cpp at ${QUICK_BITS.join(' and ')} bits (of ${BITS.join(', ')}), transformers.js at 8; batches of ${QUICK_BATCHES.join(' and ')} (of ${BATCHES.join(', ')}) with the shortest of their contexts and prompts; no streams through the platform.`,
  async run(options) {
    await installPeers(options.progress);
    const machine = await measureMachine(THREADS);
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-bench-'));
    try {
      const rows: Row[] = [];
      for (const bits of options.quick ? QUICK_BITS : BITS) {
        rows.push(...(await againstLlamaCpp(bits, machine, directory, options)));
      }
      rows.push(...(await againstTransformers(machine, directory, options)));
      return report(rows, [machine, await measureMachine(THREADS)]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

/** One line of the report. */
interface Row {
  readonly what: string;
  readonly peer: string;
  readonly rate: Spread;
  readonly ratio: Spread;
  /** Our time over the floor; undefined for rows without a floor. */
  readonly floor?: Spread;
  readonly tokens?: TokenCheck | undefined;
  /** True when both sides must pick the same greedy tokens: the same weights, as floats of 32 bits. */
  readonly mustAgree?: boolean;
  readonly memory?: Measurement['memory'];
}

interface Case {
  readonly what: string;
  readonly task: Task;
  /** Tokens of one step or one prefill, whichever the task measures. */
  readonly tokens: number;
}

function cases(contextLength: number, quick: boolean): Case[] {
  const list: Case[] = [];
  for (const batch of quick ? QUICK_BATCHES : BATCHES) {
    // A step of many sequences takes the peers most of a second.
    const steps = quick || batch > 8 ? 8 : 32;
    const full = contextLength - steps - 1;
    for (const context of quick ? [16] : [16, 128, full]) {
      const task: Task = { kind: 'decode', batch, context, steps };
      list.push({ what: `decode, batch ${batch}, context ${context}`, task, tokens: batch });
    }
  }
  for (const tokens of quick ? [64] : [64, Math.min(240, contextLength - 1)]) {
    list.push({ what: `prefill of ${tokens}`, task: { kind: 'prefill', tokens, times: quick ? 2 : 6 }, tokens });
  }
  return list;
}

async function againstLlamaCpp(
  bits: GgufBits,
  machine: MachineRates,
  directory: string,
  { repetitions, quick, progress }: BenchOptions,
): Promise<Row[]> {
  const name = 'stories15m';
  const model = await loadModel((await pullModel(name)).directory);
  const { contextLength } = model.config;
  const file = path.join(directory, `${name}-${bits}.gguf`);
  await writeGguf(model, bits, file);
  await using ours = await EngineProcess.start('ours.ts', [name, String(bits)]);
  // On some machines llama.cpp's threads contend, so the faster of these two processes counts as the peer.
  await using oneThread = await EngineProcess.start('llama-cpp.ts', [file, '1', String(contextLength)]);
  await using allThreads = await EngineProcess.start('llama-cpp.ts', [file, String(THREADS), String(contextLength)]);
  const rows: Row[] = [];
  for (const each of cases(contextLength, quick)) {
    const comparison = await compare(each, ours, [oneThread, allThreads], repetitions);
    const floor = await overFloor(comparison, each.task, { machine, config: model.config, bits });
    const what = `stories15m ${bits} bit, ${each.what}`;
    rows.push({ what, peer: 'node-llama-cpp', ...comparison, floor, mustAgree: bits === 32 });
    progress(describe(rows.at(-1) as Row));
  }
  if (quick) return rows;
  const platform = await measureThroughPlatform(
    { bits, clients: CLIENTS, tokens: CLIENT_TOKENS, rounds: repetitions },
    [oneThread, allThreads],
  );
  rows.push({
    what: `stories15m ${bits} bit, ${CLIENTS} clients through the platform`,
    peer: 'node-llama-cpp, no server around it',
    rate: spread(platform.map(({ rate }) => rate)),
    ratio: spread(platform.map(({ rate, peerRate }) => rate / peerRate)),
  });
  progress(describe(rows.at(-1) as Row));
  return rows;
}

async function againstTransformers(
  machine: MachineRates,
  directory: string,
  { repetitions, quick, progress }: BenchOptions,
): Promise<Row[]> {
  const name = 'minimind2-small';
  const { config } = await loadModel((await pullModel(name)).directory);
  await using ours = await EngineProcess.start('ours.ts', [name, '8']);
  await using theirs = await EngineProcess.start('transformers.ts', [directory]);
  const rows: Row[] = [];
  for (const each of cases(256, quick)) {
    const comparison = await compare(each, ours, [theirs], repetitions);
    const floor = await overFloor(comparison, each.task, { machine, config, bits: 8 });
    rows.push({ what: `minimind2-small 8 bit, ${each.what}`, peer: 'transformers.js', ...comparison, floor });
    progress(describe(rows.at(-1) as Row));
  }
  return rows;
}

async function overFloor({ ms }: Comparison, task: Task, floorInputs: FloorInputs): Promise<Spread> {
  const floorMs = await floorMsOf(task, floorInputs);
  return spread(ms.map((each) => each / floorMs));
}

interface FloorInputs {
  readonly machine: MachineRates;
  readonly config: ModelConfig;
  readonly bits: number;
}

/**
 * Least milliseconds of a step or a prefill: the time to read its weights and cache once, at the bandwidth measured for that many bytes, or the
 * time of its multiplications at the measured matrix peak, whichever is longer.
 */
async function floorMsOf(task: Task, { machine, config, bits }: FloorInputs): Promise<number> {
  const { hiddenSize, intermediateSize, layers, heads, headDim, vocabularySize } = config;
  const body = layers * hiddenSize * (2 * heads * headDim + 2 * kvSize(config) + 3 * intermediateSize);
  const head = hiddenSize * vocabularySize;
  const isDecode = task.kind === 'decode';
  const inputs = isDecode ? task.batch : task.tokens;
  const headRows = isDecode ? task.batch : 1;
  const keys = isDecode ? task.batch * (task.context + task.steps / 2) : task.tokens;
  const bytes = ((body + head) * bits) / 8 + keys * layers * 2 * kvSize(config) * 4;
  const scores = isDecode ? keys : (task.tokens * (task.tokens + 1)) / 2;
  const operations = 2 * (inputs * body + headRows * head) + 4 * layers * heads * headDim * scores;
  const readMs = (bytes * 1000) / (await machine.bytesPerSecond(bytes));
  return Math.max(readMs, (operations * 1000) / machine.operationsPerSecond);
}

function describe({ what, ratio, rate, floor, tokens, mustAgree = false }: Row): string {
  const over = floor ? `, ${format(floor.median)} × the floor` : '';
  const same = tokens ? `, greedy tokens: ${formatTokens(tokens, mustAgree)}` : '';
  return `${what}: ${format(rate.median, 0)} tokens/s, ${format(ratio.median)} × the peer${over}${same}`;
}

function formatTokens(tokens: TokenCheck | undefined, mustAgree: boolean): string {
  if (tokens === undefined) return '';
  if (tokens.firstDifference < 0) return `all ${tokens.count}`;
  return `${mustAgree ? 'DIFFERS' : 'differ'} from token ${tokens.firstDifference + 1} of ${tokens.count}`;
}

function report(rows: readonly Row[], machines: readonly MachineRates[]): BenchReport {
  const peaks = machines.map(({ operationsPerSecond }) => format(operationsPerSecond / 1e9, 0));
  return {
    title: 'Our engine against node-llama-cpp, transformers.js and the floor',
    header: ['task', 'tokens/s', 'over the peer', 'peer', 'time over the floor', 'same greedy tokens'],
    rows: rows.map(({ what, peer, rate, ratio, floor, tokens, mustAgree = false }) => [
      what,
      formatSpread(rate, 0),
      formatSpread(ratio),
      peer,
      floor ? formatSpread(floor) : '',
      formatTokens(tokens, mustAgree),
    ]),
    notes: [
      `Matrix peak ${peaks.join(' GFLOP/s before the tasks and ')} after them (1024³ float32 product, ${THREADS} threads); the floor takes the first.`,
      'Floor: weights and cache read once at the bandwidth measured for that many bytes, or all multiplications at the float32 matrix peak.',
      'node-llama-cpp: the same weights as GGUF (F32, Q8_0, Q4_0), one context, one thread or all, whichever is faster in the round.',
      'Same greedy tokens: those of the first sequence in every round, compared with those of every peer process. At 32 bits a row with other tokens is marked "DIFFERS": its two sides did not compute the same. At 8 and 4 bits the two quantize in different blocks.',
      ...(rows.every(({ floor }) => floor)
        ? []
        : [
            `Through the platform: tokens that ${CLIENTS} HTTP clients received, while the peer's sequences decode without a server and beside the idle platform.`,
          ]),
      ...memoryNotes(rows),
      'transformers.js: the 8-bit ONNX export as published, one call of `generate` for the batch. Medians (min–max); ratios within a round.',
    ],
    data: rows,
  };
}

/** Resident size against weights and pool, after the first and after the last task of each engine process. */
function memoryNotes(rows: readonly Row[]): string[] {
  const kinds = new Map<string, Row[]>();
  for (const row of rows) {
    const kind = row.what.split(',', 1)[0] as string;
    if (row.memory) kinds.set(kind, [...(kinds.get(kind) ?? []), row]);
  }
  const mb = (bytes: number | undefined) => format((bytes ?? Number.NaN) / 1e6, 0);
  return [...kinds].map(([kind, rowsOfKind]) => {
    const [first, last] = [rowsOfKind[0]?.memory, rowsOfKind.at(-1)?.memory];
    return `Memory, ${kind}: weights and pool ${mb(last?.accounted)} MB; resident ${mb(first?.resident)} MB after the first task, ${mb(last?.resident)} MB after the last.`;
  });
}
