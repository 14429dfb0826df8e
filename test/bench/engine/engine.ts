import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench, BenchOptions, BenchReport } from '../bench.ts';
import { outputOf } from '../clients.ts';
import { format, formatSpread, type Spread, spread } from '../statistics.ts';
import { EngineProcess } from './engine-process.ts';
import type { Measured, Task } from './engines.ts';
import { type Machine, measureMachine } from './floor.ts';
import { type GgufBits, writeGguf } from './gguf.ts';
import { installPeers } from './peers.ts';

const BITS: readonly GgufBits[] = [32, 8, 4];
const THREADS = os.availableParallelism();
const CLIENTS = 32;
const CLIENT_TOKENS = 96;

/** Our engine against node-llama-cpp on the same weights, against transformers.js, and against the floor of the machine. */
export const engine: Bench = {
  name: 'engine',
  summary: 'prefill and decode against node-llama-cpp, transformers.js and the floor',
  async run(options) {
    await installPeers(options.progress);
    const machine = await measureMachine(THREADS);
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-bench-'));
    try {
      const rows: Row[] = [];
      for (const bits of options.quick ? ([32] as const) : BITS) {
        rows.push(...(await againstLlamaCpp(bits, machine, directory, options)));
      }
      rows.push(...(await againstTransformers(machine, options)));
      rows.push(...(await throughThePlatform(directory, options)));
      return report(rows, machine);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

/** One line of the report: our engine and the peer run the same task in turn, `repetitions` times. */
interface Row {
  readonly what: string;
  readonly peer: string;
  /** Tokens a second of our engine. */
  readonly rate: Spread;
  /** Our rate over the peer's, within each round. */
  readonly ratio: Spread;
  /** Our time over the floor; undefined for rows without a floor. */
  readonly floor: Spread | undefined;
  /** Memory of our engine after the task. */
  readonly memory?: Measured['memory'];
}

interface Case {
  readonly what: string;
  readonly task: Task;
  /** Tokens per measured unit. */
  readonly tokens: number;
}

function cases(contextLength: number, quick: boolean): Case[] {
  const list: Case[] = [];
  for (const batch of quick ? [1, 32] : [1, 8, 32, 128]) {
    // A step of many sequences takes the peers most of a second.
    const steps = quick || batch > 8 ? 8 : 32;
    const full = contextLength - steps - 1;
    for (const context of quick ? [16] : [16, 128, full]) {
      const task: Task = { kind: 'decode', batch, context, steps };
      list.push({ what: `decode, batch ${batch}, context ${context}`, task, tokens: batch });
    }
  }
  for (const tokens of [64, Math.min(240, contextLength - 1)]) {
    list.push({ what: `prefill of ${tokens}`, task: { kind: 'prefill', tokens, times: quick ? 2 : 6 }, tokens });
  }
  return list;
}

async function againstLlamaCpp(
  bits: GgufBits,
  machine: Machine,
  directory: string,
  { repetitions, quick, progress }: BenchOptions,
): Promise<Row[]> {
  const name = 'stories15m';
  const model = await loadModel((await pullModel(name)).directory);
  const { contextLength } = model.config;
  const file = path.join(directory, `${name}-${bits}.gguf`);
  await writeGguf(model, bits, file);
  await using ours = await EngineProcess.start('ours.ts', [name, String(bits)]);
  // On some machines llama.cpp's threads contend, so the report shows the better of the two.
  await using alone = await EngineProcess.start('llama-cpp.ts', [file, '1', String(contextLength)]);
  await using both = await EngineProcess.start('llama-cpp.ts', [file, String(THREADS), String(contextLength)]);
  const rows: Row[] = [];
  for (const each of cases(contextLength, quick)) {
    rows.push(
      await compare(`stories15m ${bits} bit, ${each.what}`, 'node-llama-cpp', each, ours, [alone, both], repetitions, {
        machine,
        config: model.config,
        bits,
      }),
    );
    progress(describe(rows.at(-1) as Row));
  }
  return rows;
}

async function againstTransformers(machine: Machine, { repetitions, quick, progress }: BenchOptions): Promise<Row[]> {
  const name = 'minimind2-small';
  const { config } = await loadModel((await pullModel(name)).directory);
  await using ours = await EngineProcess.start('ours.ts', [name, '8']);
  await using theirs = await EngineProcess.start('transformers.ts', []);
  const rows: Row[] = [];
  for (const each of cases(256, quick)) {
    rows.push(
      await compare(`minimind2-small 8 bit, ${each.what}`, 'transformers.js', each, ours, [theirs], repetitions, {
        machine,
        config,
        bits: 8,
      }),
    );
    progress(describe(rows.at(-1) as Row));
  }
  return rows;
}

/** 32 invocations through gateway, runtime and GPU host, against 32 sequences of node-llama-cpp's one context. */
async function throughThePlatform(directory: string, { repetitions, quick, progress }: BenchOptions): Promise<Row[]> {
  const rows: Row[] = [];
  for (const bits of quick ? ([32] as const) : BITS) {
    const file = path.join(directory, `stories15m-${bits}.gguf`);
    const rates: number[] = [];
    const ratios: number[] = [];
    for (let round = 0; round < (quick ? 1 : Math.min(3, repetitions)); round++) {
      const rate = await platformRate(bits);
      await using alone = await EngineProcess.start('llama-cpp.ts', [file, '1', '256']);
      const task: Task = { kind: 'decode', batch: CLIENTS, context: 8, steps: CLIENT_TOKENS };
      const { ms } = await alone.measure(task);
      rates.push(rate);
      ratios.push(rate / ((CLIENTS * 1000) / ms));
    }
    const row: Row = {
      what: `stories15m ${bits} bit, ${CLIENTS} clients through the platform`,
      peer: 'node-llama-cpp, no server around it',
      rate: spread(rates),
      ratio: spread(ratios),
      floor: undefined,
    };
    rows.push(row);
    progress(describe(row));
  }
  return rows;
}

async function platformRate(bits: GgufBits): Promise<number> {
  await using platform = await Platform.start({
    functions: ['text-completion'],
    env: { PIE_BITS: String(bits), PIE_MODEL: 'stories15m' },
  });
  const inputs = Array.from({ length: CLIENTS }, (_, i) => ({
    prompt: `Once upon a time, number ${i}`,
    maxTokens: CLIENT_TOKENS,
    temperature: 0,
  }));
  const run = async (input: object) => outputOf(await invoke(platform, 'text-completion', input));
  await Promise.all(inputs.map(run)); // Warm-up.
  const start = performance.now();
  await Promise.all(inputs.map(run));
  return (CLIENTS * CLIENT_TOKENS * 1000) / (performance.now() - start);
}

interface FloorOf {
  readonly machine: Machine;
  readonly config: ModelConfig;
  readonly bits: number;
}

async function compare(
  what: string,
  peer: string,
  { task, tokens }: Case,
  ours: EngineProcess,
  theirs: readonly EngineProcess[],
  repetitions: number,
  floorOf: FloorOf,
): Promise<Row> {
  const rates: number[] = [];
  const ratios: number[] = [];
  const floors: number[] = [];
  const floorMs = await floorMsOf(task, floorOf);
  let memory: Measured['memory'];
  let rivals = theirs;
  for (let i = 0; i < repetitions; i++) {
    const { ms, memory: after } = await ours.measure(task);
    memory = after;
    let best = Number.POSITIVE_INFINITY;
    let fastest = rivals;
    for (const each of rivals) {
      const { ms: theirMs } = await each.measure(task);
      if (theirMs < best) [best, fastest] = [theirMs, [each]];
    }
    // Thread counts that lost the first round take no part in later rounds.
    rivals = fastest;
    rates.push((tokens * 1000) / ms);
    ratios.push(best / ms);
    floors.push(ms / floorMs);
  }
  return { what, peer, rate: spread(rates), ratio: spread(ratios), floor: spread(floors), memory };
}

/**
 * Least milliseconds of a step: reading its weights and cache once at the bandwidth measured for that many bytes, or its multiplications
 * at the measured matrix peak, whichever is longer.
 */
async function floorMsOf(task: Task, { machine, config, bits }: FloorOf): Promise<number> {
  const { hiddenSize, intermediateSize, layers, heads, headDim, vocabularySize } = config;
  const body = layers * hiddenSize * (2 * heads * headDim + 2 * kvSize(config) + 3 * intermediateSize);
  const head = hiddenSize * vocabularySize;
  const decode = task.kind === 'decode';
  const inputs = decode ? task.batch : task.tokens;
  const headRows = decode ? task.batch : 1;
  const keys = decode ? task.batch * (task.context + task.steps / 2) : task.tokens;
  const bytes = ((body + head) * bits) / 8 + keys * layers * 2 * kvSize(config) * 4;
  const scores = decode ? keys : (task.tokens * (task.tokens + 1)) / 2;
  const operations = 2 * (inputs * body + headRows * head) + 4 * layers * heads * headDim * scores;
  const readMs = (bytes * 1000) / (await machine.bytesPerSecond(bytes));
  return Math.max(readMs, (operations * 1000) / machine.operationsPerSecond);
}

function describe({ what, ratio, rate, floor }: Row): string {
  const over = floor ? `, ${format(floor.median)} × the floor` : '';
  return `${what}: ${format(rate.median, 0)} tokens/s, ${format(ratio.median)} × the peer${over}`;
}

function report(rows: readonly Row[], machine: Machine): BenchReport {
  return {
    title: 'Our engine against node-llama-cpp, transformers.js and the floor',
    header: ['task', 'tokens/s', 'over the peer', 'peer', 'time over the floor'],
    rows: rows.map(({ what, peer, rate, ratio, floor }) => [
      what,
      formatSpread(rate, 0),
      formatSpread(ratio),
      peer,
      floor ? formatSpread(floor) : '',
    ]),
    notes: [
      `Matrix peak ${format(machine.operationsPerSecond / 1e9, 0)} GFLOP/s (1024³ float32 product, ${THREADS} threads).`,
      'Floor: weights and cache read once at the bandwidth measured for that many bytes, or all multiplications at the float32 matrix peak.',
      'node-llama-cpp: the same weights as GGUF (F32, Q8_0, Q4_0), one context, one thread or all, whichever was faster in the first round.',
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
  return [...kinds].map(([kind, own]) => {
    const [first, last] = [own[0]?.memory, own.at(-1)?.memory];
    return `Memory, ${kind}: weights and pool ${mb(last?.accounted)} MB; resident ${mb(first?.resident)} MB after the first task, ${mb(last?.resident)} MB after the last.`;
  });
}
