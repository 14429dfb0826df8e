import type { Backend } from '#gpu-host/backends/backend.ts';
import { bareLoop } from '#gpu-host/backends/bench.ts';
import { createGgmlBackend } from '#gpu-host/backends/ggml/index.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { aheadShare, type ModelSummary } from '#gpu-host/protocol/host.ts';
import { loadConfig } from '#infra/config.ts';
import { COMPUTING_BACKENDS, type ModelEntry } from '#infra/model-entry.ts';
import type { Platform } from '#test/harness/platform.ts';
import { connectStats, startTogether } from './clients.ts';
import { inTurn, warmUp } from './rounds.ts';
import { format, type Spread, spread } from './statistics.ts';

/**
 * A way in which the inferlet `decode` (`test/inferlets/decode.ts`) generates each token greedily. `split`: three calls, `embedText`, `forward`
 * and `nextDistribution`. `fused`: one `step`. `run-ahead`: the GPU host decodes the whole text by itself (`Run`). `penalties`: as `run-ahead`, with
 * a frequency and a presence penalty, for which the GPU host changes the logits of each token.
 */
export type Way = 'split' | 'fused' | 'run-ahead' | 'penalties';

export interface OverBareOptions {
  readonly ways: readonly Way[];
  /** Numbers of inferlets that decode at once. Each number is measured with each way. */
  readonly clients: readonly number[];
  /** Tokens in the cache of each inferlet before the first measured step. */
  readonly context: number;
  /** Tokens that each inferlet decodes in a round. */
  readonly steps: number;
  /** Measured rounds. An unmeasured round before them warms both sides: the platform and the bare loop. */
  readonly rounds: number;
  readonly progress: (line: string) => void;
}

/**
 * Time per token of one way at one number of clients, compared with a step of the bare loop (`bareLoop`): the same backend, called back to back
 * in this process. Each spread is over the measured rounds.
 */
export interface OverBare {
  readonly way: Way;
  /** Inferlets that decoded at once, and sequences in the batch of the bare loop. */
  readonly clients: number;
  /** Time for one token of every inferlet, in ms: from the beginning of the first inferlet to the end of the last, divided by the steps. */
  readonly perToken: Spread;
  /** Time of a step of the bare loop, in ms. */
  readonly bare: Spread;
  /** `perToken` divided by `bare`, both of the same round. */
  readonly ratio: Spread;
  /** `perToken` minus `bare`, both of the same round, in ms. */
  readonly tax: Spread;
  /** Mean sequences per batch of the GPU host. */
  readonly batch: Spread;
  /** Part of the inferlets' time in which the GPU host's device computed, 0 to 1. */
  readonly deviceShare: Spread;
  /** Share of the device's steps that it got before it had finished the step before, 0 to 1 (`aheadShare` of the protocol). */
  readonly aheadShare: Spread;
}

/** Output of one invocation of the inferlet `decode`. */
interface DecodeOutput {
  /** Beginning of the decoding, in milliseconds since 1970. */
  readonly startedAt: number;
  readonly elapsedMs: number;
  /** Number of tokens decoded. */
  readonly tokens: number;
  /** Exclusive or of all token ids. */
  readonly checksum: number;
}

/** The benchmark's own backend for the platform's first model, set up like that of the GPU host. `await using` disposes of the backend. */
export class BareBackend implements AsyncDisposable {
  /** The model's settings in the platform's config. */
  readonly entry: ModelEntry;
  readonly backend: Backend;
  /** Connection to the platform's GPU host, for its counters. */
  readonly stats: GpuHostConnection;

  private constructor(entry: ModelEntry, backend: Backend, stats: GpuHostConnection) {
    this.entry = entry;
    this.backend = backend;
    this.stats = stats;
  }

  static async open(platform: Platform): Promise<BareBackend> {
    const entry = loadConfig(platform.environment).gpuHosts[0]?.models[0];
    const stats = await connectStats(platform);
    const served = stats.models[0];
    if (entry === undefined || served === undefined) throw new Error('no model');
    return new BareBackend(entry, await createBackend(entry, served), stats);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stats.close();
    await this.backend.dispose();
  }
}

async function createBackend(
  { bits, headBits, threads }: ModelEntry,
  {
    backend: name,
    directory,
    pageSize,
    pageCount,
  }: Pick<ModelSummary, 'backend' | 'directory' | 'pageSize' | 'pageCount'>,
): Promise<Backend> {
  const memory = { pageSize, pageCount };
  const backend = COMPUTING_BACKENDS.find((each) => each === name);
  switch (backend) {
    case 'cuda':
      throw new Error(
        'The bare loop does not run on cuda. Unset PIE_BACKEND; cuda/card/platform-tax.ts measures the same on a card.',
      );
    case 'reference':
      return createReferenceBackend(await loadModel(directory), memory);
    case 'onnx':
      return createOnnxBackend(await loadModel(directory), {
        ...memory,
        bits,
        headBits,
        ...(threads > 0 && { threads }),
      });
    case 'ggml':
      return createGgmlBackend(await loadModel(directory), {
        ...memory,
        bits,
        headBits,
        ...(threads > 0 && { threads }),
      });
    default:
      throw new Error(`The bare loop does not run on ${name}.`);
  }
}

/**
 * Compares the time per output token of the inferlet `decode` with a step of the bare loop at the same batch and context. Both sides run in each
 * round and take turns in going first. Returns a row for each way at each number of clients.
 */
export async function measureOverBare(
  platform: Platform,
  { backend, stats }: BareBackend,
  options: OverBareOptions,
): Promise<OverBare[]> {
  const { ways, context, steps, rounds, progress } = options;
  const rows: OverBare[] = [];
  for (const clients of options.clients) {
    const samples = new Map(ways.map((way) => [way, [] as Sample[]]));
    for (let round = 0; round <= rounds; round++) {
      for (const way of ways) {
        const sides = [
          () => bareLoop(backend, { batch: clients, context, steps }),
          () => decodeTogether(platform, stats, { way, clients, context, steps }),
        ] as const;
        if (round === 0) {
          await warmUp(sides);
          continue;
        }
        const [bare, { spanMs, statsAfter }] = await inTurn(round, sides);
        samples.get(way)?.push({
          perToken: spanMs / steps,
          bare: bare.msPerStep,
          batch: statsAfter?.meanBatchSize ?? 0,
          deviceShare: (statsAfter?.deviceBusyMs ?? 0) / spanMs,
          aheadShare: statsAfter ? aheadShare(statsAfter) : 0,
        });
      }
    }
    for (const [way, waySamples] of samples) {
      const spreadOf = (pick: (one: Sample) => number) => spread(waySamples.map(pick));
      const row = {
        way,
        clients,
        perToken: spreadOf((one) => one.perToken),
        bare: spreadOf((one) => one.bare),
        ratio: spreadOf((one) => one.perToken / one.bare),
        tax: spreadOf((one) => one.perToken - one.bare),
        batch: spreadOf((one) => one.batch),
        deviceShare: spreadOf((one) => one.deviceShare),
        aheadShare: spreadOf((one) => one.aheadShare),
      };
      rows.push(row);
      progress(`${way} at ${clients}: ${format(row.ratio.median)}`);
    }
  }
  return rows;
}

/** The numbers of one round, named as in {@link OverBare}. */
interface Sample {
  readonly perToken: number;
  readonly bare: number;
  readonly batch: number;
  readonly deviceShare: number;
  readonly aheadShare: number;
}

/** One round of the platform's side. */
interface DecodeTask {
  readonly way: Way;
  readonly clients: number;
  readonly context: number;
  readonly steps: number;
}

/**
 * Lets `clients` inferlets decode at once. Returns the time from the beginning of the first inferlet to the end of the last (`spanMs`), and the
 * GPU host's counters of the model for that time (`statsAfter`).
 *
 * @throws Error when an inferlet decodes too few tokens, or other tokens than the rest: all have the same prompt and decode greedily
 */
async function decodeTogether(platform: Platform, stats: GpuHostConnection, { clients, ...input }: DecodeTask) {
  const inputs = Array.from({ length: clients }, () => input);
  const resetCounters = async (): Promise<void> => {
    await stats.stats({ reset: true });
  };
  const outputs = await startTogether<DecodeOutput>(platform, 'decode', inputs, resetCounters);
  const [statsAfter] = (await stats.stats()).models;
  const { way, steps } = input;
  if (new Set(outputs.map(({ checksum }) => checksum)).size !== 1)
    throw new Error(`${way}: equal prompts, different tokens`);
  const shortOutput = outputs.find(({ tokens }) => tokens !== steps);
  if (shortOutput) throw new Error(`${way}: ${shortOutput.tokens} tokens instead of ${steps}`);
  const ends = outputs.map(({ startedAt, elapsedMs }) => startedAt + elapsedMs);
  return { spanMs: Math.max(...ends) - Math.min(...outputs.map(({ startedAt }) => startedAt)), statsAfter };
}
