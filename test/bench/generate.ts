import { bareLoop } from '#gpu-host/backends/bench.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { aheadShare } from '#gpu-host/protocol/host.ts';
import { loadConfig } from '#infra/config.ts';
import { deploy } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { connectStats, startTogether } from './clients.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, type Spread, spread } from './statistics.ts';

const WAYS = ['split', 'fused', 'run-ahead'] as const;
const CONTEXT = 32;
const STEPS = 192;

const AIMS: Readonly<Record<string, string>> = { 'fused 1': '≤ 1.05', 'fused 32': '≤ 1.10' };

interface Decoded {
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly elapsedMs: number;
  readonly tokens: number;
  readonly checksum: number;
}

interface Row {
  readonly way: string;
  readonly clients: number;
  readonly perToken: Spread;
  readonly bare: Spread;
  readonly ratio: Spread;
  readonly batch: Spread;
  readonly deviceShare: Spread;
  readonly aheadShare: Spread;
}

/** Time per output token through the whole platform over the backend's bare loop, in the same run. */
export const generate: Bench = {
  name: 'generate',
  summary: 'time per output token over a bare loop of the same backend, at 1, 8 and 32 clients',
  help: `1, 8 and 32 inferlets decode ${STEPS} tokens side by side in three ways: three calls a token, one step a token, and a run on the device.
The baseline is the same backend called back to back in the benchmark's own process, at the same batch and context. Both run in each round
and take turns in going first; one more round before warms both.`,
  async run({ repetitions, quick, progress }) {
    await using platform = await Platform.start({ functions: false });
    await deploy(platform, 'decode');
    const stats = await connectStats(platform);
    const entry = loadConfig(platform.environment).gpuHosts[0]?.models[0];
    const directory = stats.models[0]?.directory;
    if (entry === undefined || directory === undefined) throw new Error('no model');
    const model = await loadModel(directory);
    const backend =
      entry.backend === 'reference'
        ? await createReferenceBackend(model, { pageSize: entry.pageSize, pageCount: entry.pages })
        : await createOnnxBackend(model, {
            pageSize: entry.pageSize,
            pageCount: entry.pages,
            bits: entry.bits,
            headBits: entry.headBits,
            ...(entry.threads > 0 ? { threads: entry.threads } : {}),
          });
    const rows: Row[] = [];
    try {
      for (const clients of quick ? [1, 8] : [1, 8, 32]) {
        const samples = new Map(
          WAYS.map((way) => [
            way,
            {
              perToken: [] as number[],
              bare: [] as number[],
              batch: [] as number[],
              device: [] as number[],
              ahead: [] as number[],
            },
          ]),
        );
        for (let i = 0; i <= (quick ? 1 : repetitions); i++) {
          for (const way of WAYS) {
            const [bare, { spanMs, after }] = await inTurn(i, [
              () => bareLoop(backend, { batch: clients, context: CONTEXT, steps: STEPS }),
              () => decodeTogether(platform, stats, way, clients),
            ]);
            if (i === 0) continue; // Warm-up.
            const sample = samples.get(way);
            sample?.perToken.push(spanMs / STEPS);
            sample?.bare.push(bare.msPerStep);
            sample?.batch.push(after?.meanBatchSize ?? 0);
            sample?.device.push((after?.deviceBusyMs ?? 0) / spanMs);
            sample?.ahead.push(after ? aheadShare(after) : 0);
          }
        }
        for (const [way, sample] of samples) {
          const row = {
            way,
            clients,
            perToken: spread(sample.perToken),
            bare: spread(sample.bare),
            ratio: spread(sample.perToken.map((each, i) => each / (sample.bare[i] ?? Number.NaN))),
            batch: spread(sample.batch),
            deviceShare: spread(sample.device),
            aheadShare: spread(sample.ahead),
          };
          rows.push(row);
          progress(`${way} at ${clients}: ${format(row.ratio.median)}`);
        }
      }
    } finally {
      stats.close();
      await backend.dispose();
    }
    return {
      title: `Time per output token, ${entry.name} (${entry.backend}, ${entry.bits} bits), context ${CONTEXT} to ${CONTEXT + STEPS}`,
      header: [
        'way',
        'clients',
        'ms a token',
        'bare step ms',
        'ratio',
        'aim',
        'mean batch',
        'device busy',
        'steps ahead',
      ],
      rows: rows.map((row) => [
        row.way,
        String(row.clients),
        formatSpread(row.perToken),
        formatSpread(row.bare),
        formatSpread(row.ratio),
        AIMS[`${row.way} ${row.clients}`] ?? '',
        format(row.batch.median, 1),
        format(row.deviceShare.median),
        `${Math.round(100 * row.aheadShare.median)} %`,
      ]),
      notes: [
        'split: embed, forward, next-distribution. fused: one step a token. run-ahead: decoded on the device.',
        'The bare loop calls the backend back to back at the same batch, context and threads; in each round one follows the other, in turns, and the ratio is taken within the round.',
        'Steps ahead were handed to the device while the one before was computed, where the backend can (cuda).',
        `ms a token: from the first inferlet's go to the last inferlet's last token by their clocks, over ${STEPS} steps. The go reaches them one after another, which counts.`,
      ],
      data: rows,
    };
  },
};

/** Lets `clients` inferlets decode side by side. `spanMs` is the time from the first one's beginning to the last one's end. */
async function decodeTogether(platform: Platform, stats: GpuHostConnection, way: string, clients: number) {
  const inputs = Array.from({ length: clients }, () => ({ way, context: CONTEXT, steps: STEPS }));
  const outputs = await startTogether<Decoded>(platform, 'decode', inputs, async () => {
    await stats.stats({ reset: true });
  });
  const [after] = (await stats.stats()).models;
  if (new Set(outputs.map(({ checksum }) => checksum)).size !== 1)
    throw new Error(`${way}: equal prompts, different tokens`);
  const short = outputs.find(({ tokens }) => tokens !== STEPS);
  if (short) throw new Error(`${way}: ${short.tokens} tokens instead of ${STEPS}`);
  const ends = outputs.map(({ startedAt, elapsedMs }) => startedAt + elapsedMs);
  return { spanMs: Math.max(...ends) - Math.min(...outputs.map(({ startedAt }) => startedAt)), after };
}
