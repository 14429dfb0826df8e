import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { randomAdapter, randomModel } from '#gpu-host/models/testing/random-model.ts';
import { parseReadyLine } from '#infra/lifeline.ts';

/** Name of the model that a test's GPU host serves: by default a tiny random model on the reference backend. */
export const TEST_MODEL = 'tiny';

const PAGE_SIZE = 16;
const PAGES = 256;
/** Seeds of the random model, its adapter and the encoders. */
const SEEDS = { model: 7, adapter: 8, encoder: 9 };

export interface TestGpuHostOptions {
  readonly pages?: number;
  /** Name of the host; `gpu-host-1` by default. */
  readonly name?: string;
  /** Seed of the random model; hosts with the same seed have the same model. */
  readonly seed?: number;
  /** Directory of a model to serve in place of the random one. */
  readonly model?: string;
  /** Serves the model under this second name, too. */
  readonly otherModel?: string;
  /** Further settings of the model in the host's configuration. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Gives the random model a random adapter of this name. */
  readonly adapter?: string;
  /** Serves a random encoder of this name, which makes vectors. */
  readonly encoder?: string;
  /** Serves a random encoder of this name, which scores documents. */
  readonly reranker?: string;
}

interface HostConfig {
  readonly encoders: readonly object[];
}

/** A GPU host of a single test: a process, on a socket in a temporary directory. */
export class TestGpuHost {
  readonly #directory: string;
  readonly #config: HostConfig;
  #child: ChildProcess;

  private constructor(directory: string, config: HostConfig, child: ChildProcess) {
    this.#directory = directory;
    this.#config = config;
    this.#child = child;
  }

  static async start(options: TestGpuHostOptions = {}): Promise<TestGpuHost> {
    const directory = await mkdtemp(join(tmpdir(), 'pie-gpu-'));
    const model = options.model ?? join(directory, 'model');
    const { config: shape } =
      options.model === undefined ? await randomModel(model, {}, options.seed ?? SEEDS.model) : { config: undefined };
    const adapters: object[] = [];
    if (shape && options.adapter !== undefined) {
      await randomAdapter(join(directory, 'adapter'), shape, SEEDS.adapter);
      adapters.push({ name: options.adapter, source: `file:${join(directory, 'adapter')}` });
    }
    const encoders = [];
    for (const [kind, name] of [['embedding', options.encoder] as const, ['reranker', options.reranker] as const]) {
      if (name === undefined) continue;
      const { directory: source } = await randomEncoder(join(directory, kind), { kind }, SEEDS.encoder);
      encoders.push({ name, kind, source: `file:${source}`, threads: 1 });
    }
    const config = {
      name: options.name ?? 'gpu-host-1',
      address: join(directory, 'gpu.sock'),
      kvDirectory: join(directory, 'kv'),
      encoders,
      models: [TEST_MODEL, ...(options.otherModel === undefined ? [] : [options.otherModel])].map((name) => ({
        name,
        source: `file:${model}`,
        backend: 'reference',
        bits: 32,
        headBits: 32,
        pages: options.pages ?? PAGES,
        pageSize: PAGE_SIZE,
        maxBatchTokens: 512,
        maxBatchSequences: 64,
        threads: 0,
        adapters,
        ...options.settings,
      })),
    };
    await write(directory, config);
    return new TestGpuHost(directory, config, await spawnHost(directory));
  }

  get address(): string {
    return join(this.#directory, 'gpu.sock');
  }

  /** Ends the process with SIGKILL; everything that it held is gone. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await once(this.#child, 'exit');
  }

  /** Stops the process until `resume`: it answers nothing. */
  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  /** @param encoderSettings further settings of the encoders, until the next restart */
  async restart(encoderSettings?: Readonly<Record<string, unknown>>): Promise<void> {
    await this.kill();
    const encoders = this.#config.encoders.map((encoder) => ({
      ...encoder,
      ...encoderSettings,
    }));
    await write(this.#directory, { ...this.#config, encoders });
    this.#child = await spawnHost(this.#directory);
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

const write = (directory: string, config: HostConfig): Promise<void> =>
  writeFile(join(directory, 'gpu-host.json'), JSON.stringify(config));

async function spawnHost(directory: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('../../gpu-host/main.ts', import.meta.url))], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      PIE_GPU_HOST_CONFIG: join(directory, 'gpu-host.json'),
      PIE_MODELS: join(directory, 'models'),
    },
  });
  const killChild = () => child.kill('SIGKILL');
  process.once('exit', killChild);
  child.once('exit', () => process.off('exit', killChild));
  for await (const line of createInterface({ input: child.stdout })) if (parseReadyLine(line)) return child;
  throw new Error('the GPU host ended before it was ready');
}
