import type { Backend } from '#gpu-host/backends/backend.ts';
import { bareLoop } from '#gpu-host/backends/bench.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { aheadShare } from '#gpu-host/protocol/host.ts';
import { loadConfig } from '#infra/config.ts';
import type { ModelEntry } from '#infra/model-entry.ts';
import type { Platform } from '#test/harness/platform.ts';
import { connectStats, startTogether } from './clients.ts';
import { inTurn, warmUp } from './rounds.ts';
import { format, type Spread, spread } from './statistics.ts';

export type Way = 'split' | 'fused' | 'run-ahead' | 'penalties';

export interface OverBareOptions {
  readonly ways: readonly Way[];
  /** Numbers of inferlets at once. */
  readonly clients: readonly number[];
  readonly context: number;
  readonly steps: number;
  /** Measured rounds; one more before them warms both sides. */
  readonly rounds: number;
  readonly progress: (line: string) => void;
}

/** Time per token of one way at one number of clients, over the bare step of the same rounds. */
export interface OverBare {
  readonly way: Way;
  readonly clients: number;
  readonly perToken: Spread;
  readonly bare: Spread;
  readonly ratio: Spread;
  /** Time per token that the bare loop does not take, in ms. */
  readonly tax: Spread;
  readonly batch: Spread;
  readonly deviceShare: Spread;
  readonly aheadShare: Spread;
}

interface DecodeOutput {
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly elapsedMs: number;
  readonly tokens: number;
  readonly checksum: number;
}

/** The benchmark's own backend for the platform's first model, set up like that of the GPU host. `await using` disposes of the backend. */
export class BareBackend implements AsyncDisposable {
  readonly entry: ModelEntry;
  readonly backend: Backend;
  readonly stats: GpuHostConnection;

  private constructor(entry: ModelEntry, backend: Backend, stats: GpuHostConnection) {
    this.entry = entry;
    this.backend = backend;
    this.stats = stats;
  }

  static async open(platform: Platform): Promise<BareBackend> {
    const entry = loadConfig(platform.environment).gpuHosts[0]?.models[0];
    const stats = await connectStats(platform);
    const directory = stats.models[0]?.directory;
    if (entry === undefined || directory === undefined) throw new Error('no model');
    if (entry.backend === 'cuda')
      throw new Error(
        'The bare loop does not run on cuda. Unset PIE_BACKEND; cuda/card/platform-tax.ts measures the same on a card.',
      );
    const model = await loadModel(directory);
    const memory = { pageSize: entry.pageSize, pageCount: entry.pages };
    if (entry.backend === 'reference')
      return new BareBackend(entry, await createReferenceBackend(model, memory), stats);
    const { bits, headBits, threads } = entry;
    const options = { ...memory, bits, headBits, ...(threads > 0 && { threads }) };
    return new BareBackend(entry, await createOnnxBackend(model, options), stats);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stats.close();
    await this.backend.dispose();
  }
}

/** Time per output token of the inferlet `decode` over the backend's bare loop at the same batch and context, round by round. */
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
        ...{ way, clients },
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

interface Sample {
  readonly perToken: number;
  readonly bare: number;
  readonly batch: number;
  readonly deviceShare: number;
  readonly aheadShare: number;
}

interface DecodeTask {
  readonly way: Way;
  readonly clients: number;
  readonly context: number;
  readonly steps: number;
}

/** Lets `clients` inferlets decode side by side. `spanMs` is the time from the first one's beginning to the last one's end. */
async function decodeTogether(platform: Platform, stats: GpuHostConnection, { clients, ...input }: DecodeTask) {
  const inputs = Array.from({ length: clients }, () => input);
  const outputs = await startTogether<DecodeOutput>(platform, 'decode', inputs, async () => {
    await stats.stats({ reset: true });
  });
  const [statsAfter] = (await stats.stats()).models;
  const { way, steps } = input;
  if (new Set(outputs.map(({ checksum }) => checksum)).size !== 1)
    throw new Error(`${way}: equal prompts, different tokens`);
  const shortOutput = outputs.find(({ tokens }) => tokens !== steps);
  if (shortOutput) throw new Error(`${way}: ${shortOutput.tokens} tokens instead of ${steps}`);
  const ends = outputs.map(({ startedAt, elapsedMs }) => startedAt + elapsedMs);
  return { spanMs: Math.max(...ends) - Math.min(...outputs.map(({ startedAt }) => startedAt)), statsAfter };
}
