/**
 * `node gpu-host/backends/cuda/card/platform-tax.ts --harness FILE [--shape 8B] [--clients 32] [--context 1024] [--sandboxes 1]
 * [--component decode.wasm] [--json FILE]`: prints the ratio of two times, measured in turn: a token of inferlets that decode side by side on
 * the whole platform, and the same step of the engine alone (`cuda-harness bench`). Needs Redis; first writes random weights of a true shape.
 * The last columns show how long a step runs on the device and how long it waits for guests; further lines show the processor time of each process.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { aheadShare } from '#gpu-host/protocol/host.ts';
import { connectStats, startTogether } from '#test/bench/clients.ts';
import { processesOf } from '#test/bench/process-usage.ts';
import { formatSpread, type Spread, spread, table } from '#test/bench/statistics.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { SHAPES, writeRandomShape } from './random-shape.ts';

/**
 * The ways to decode, each with its aim: the maximum time per token, as a multiple of the bare step's. In `fused` and `paged`, guests see
 * every token. In `paged` they also allocate page after page, and their pages end at different steps. A `Run` (`run-ahead`) waits for no guest.
 */
const AIMS = { fused: 1.06, paged: 1.06, 'run-ahead': 1.02 } as const;
const WAYS = Object.keys(AIMS) as (keyof typeof AIMS)[];
const PAGE_SIZE = 16;

interface Decoded {
  readonly elapsedMs: number;
}

/** The engine without Node; it runs between two rounds of the platform. */
class Harness implements Disposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  constructor(file: string) {
    this.#child = spawn(file, ['bench'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  async ask<T>(command: string): Promise<T> {
    this.#child.stdin.write(`${command}\n`);
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the harness ended at "${command}"`);
    const { result, error } = JSON.parse(value) as { result?: T; error?: string };
    if (result === undefined) throw new Error(`${command}: ${error}`);
    return result;
  }

  [Symbol.dispose](): void {
    this.#child.kill();
  }
}

await main();

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      harness: { type: 'string' },
      shape: { type: 'string', default: '8B' },
      clients: { type: 'string', default: '32' },
      context: { type: 'string', default: '1024' },
      steps: { type: 'string', default: '192' },
      rounds: { type: 'string', default: '3' },
      sandboxes: { type: 'string', default: '1' },
      component: { type: 'string', default: join(ROOT, 'test/inferlets/decode.ts') },
      model: { type: 'string' },
      json: { type: 'string' },
    },
  });
  const { harness: file, shape, component } = values;
  const config = SHAPES[shape];
  if (file === undefined || config === undefined) throw new RangeError('--harness FILE, --shape 1B, 3B, 8B or toy');
  const [clients, steps, rounds] = [Number(values.clients), Number(values.steps), Number(values.rounds)];
  /** Tokens in each cache before the first step. */
  const promptTokens = Number(values.context);
  const directory = await mkdtemp(join(tmpdir(), 'pie-tax-'));
  const model = values.model ?? join(directory, 'model');
  try {
    const beganMs = performance.now();
    if (!existsSync(join(model, 'model.safetensors'))) await writeRandomShape(model, config);
    process.stderr.write(`random weights: ${seconds(beganMs)}\n`);
    // 1.5 times the pages that the inferlets hold, because the last inferlet is admitted only while a reserve stays free.
    const pages = Math.ceil(1.5 * clients * ((promptTokens + steps) / PAGE_SIZE + 2));
    await using platform = await Platform.start({
      functions: false,
      // All inferlets have the same prompt: with the prefix cache they would share its pages, and a step would read less than the harness's.
      config: `[runtime]\nsandboxes_per_tenant = ${values.sandboxes}\n\n[[model]]\nname = "random"\nsource = "file:${model}"\nbackend = "cuda"\npages = ${pages}\nmax_batch_tokens = 2048\nprefix_cache = false\n`,
    });
    process.stderr.write(`the platform serves: ${seconds(beganMs)}\n`);
    const deployed = await platform.pie(['deploy', component, '--name', 'decode', '--json']);
    if (deployed.code !== 0) throw new Error(deployed.stderr);
    using harness = new Harness(file);
    const context = promptTokens + steps / 2;
    await harness.ask(`load shape=${shape} sequences=${clients} context=${context} room=${steps} rows=256`);
    process.stderr.write(`the harness is ready: ${seconds(beganMs)}\n`);
    const stats = await connectStats(platform);
    const bareMs: number[] = [];
    const perToken = Object.fromEntries(WAYS.map((way) => [way, [] as number[]]));
    const aheadShares = Object.fromEntries(WAYS.map((way) => [way, [] as number[]]));
    const deviceMs = Object.fromEntries(WAYS.map((way) => [way, [] as number[]]));
    const graceMs = Object.fromEntries(WAYS.map((way) => [way, [] as number[]]));
    const processUs = Object.fromEntries(WAYS.map((way) => [way, new Map<string, number>()]));
    const batchSizes: number[] = [];
    try {
      for (let round = 0; round <= rounds; round++) {
        const bareDecode = await harness.ask<{ wallMs: { mean: number } }>(
          `decode batch=${clients} context=${context} steps=${steps}`,
        );
        if (round > 0) bareMs.push(bareDecode.wallMs.mean);
        for (const way of WAYS) {
          const inputs = Array.from({ length: clients }, (_, i) => {
            const length = way === 'paged' ? promptTokens - (i % PAGE_SIZE) : promptTokens;
            return { way, context: length, steps };
          });
          let cpuUsBefore = new Map<string, number>();
          const outputs = await startTogether<Decoded>(platform, 'decode', inputs, async () => {
            await stats.stats({ reset: true });
            cpuUsBefore = processorUs(platform);
          });
          const cpuUsAfter = processorUs(platform);
          const [modelStats] = (await stats.stats()).models;
          if (modelStats === undefined || modelStats.prefix.hitTokens > 0) throw new Error('the inferlets share pages');
          if (round === 0) continue; // The first round only warms up.
          perToken[way]?.push(Math.max(...outputs.map(({ elapsedMs }) => elapsedMs)) / steps);
          batchSizes.push(modelStats.meanBatchSize);
          aheadShares[way]?.push(aheadShare(modelStats));
          deviceMs[way]?.push(modelStats.deviceBusyMs / modelStats.batches);
          graceMs[way]?.push(modelStats.graceMs / modelStats.batches);
          for (const [name, us] of cpuUsAfter) processUs[way]?.set(name, (us - (cpuUsBefore.get(name) ?? 0)) / steps);
        }
        process.stderr.write(`round ${round}: ${seconds(beganMs)}\n`);
      }
    } finally {
      stats.close();
    }
    const rows = WAYS.map((way) => ({
      way,
      perTokenMs: spread(perToken[way] ?? []),
      ratio: ratios(perToken[way] ?? [], bareMs),
      aim: AIMS[way],
      aheadShare: spread(aheadShares[way] ?? []),
      deviceMs: spread(deviceMs[way] ?? []),
      graceMs: spread(graceMs[way] ?? []),
      processUs: Object.fromEntries(processUs[way] ?? []),
    }));
    const report = {
      shape,
      clients,
      context: promptTokens,
      steps,
      bareMs: spread(bareMs),
      meanBatch: spread(batchSizes),
      rows,
    };
    if (values.json !== undefined) await writeFile(values.json, JSON.stringify(report));
    const header = [
      'way',
      'ms a token',
      'bare step, ms',
      'ratio',
      'aim',
      'steps ahead',
      'device, ms',
      'for guests, ms',
    ];
    const cells = rows.map(({ way, perTokenMs, ratio, aim, aheadShare, deviceMs, graceMs }) => [
      way,
      formatSpread(perTokenMs, 3),
      formatSpread(report.bareMs, 3),
      formatSpread(ratio, 3),
      `≤ ${aim}`,
      `${Math.round(100 * aheadShare.median)} %`,
      formatSpread(deviceMs, 3),
      formatSpread(graceMs, 3),
    ]);
    for (const { way, processUs: each } of rows)
      process.stdout.write(
        `${way}: processor time a step, last round: ${Object.entries(each)
          .filter(([, us]) => us >= 1)
          .map(([name, us]) => `${name} ${us.toFixed(0)} µs`)
          .join(', ')}\n`,
      );
    process.stdout.write(
      `${clients} inferlets, ${shape}, random weights; mean batch ${report.meanBatch.median.toFixed(1)}\n${table(header, cells)}\n`,
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Processor time of the platform's processes by name, µs. Processes of the same name are summed. */
function processorUs(platform: Platform): Map<string, number> {
  const sums = new Map<string, number>();
  for (const { name, work } of processesOf(platform.processes)) sums.set(name, (sums.get(name) ?? 0) + work.cpuUs);
  return sums;
}

function ratios(perToken: readonly number[], bareMs: readonly number[]): Spread {
  return spread(perToken.map((each, i) => each / (bareMs[i] ?? Number.NaN)));
}

function seconds(sinceMs: number): string {
  return `${((performance.now() - sinceMs) / 1000).toFixed(1)} s`;
}
