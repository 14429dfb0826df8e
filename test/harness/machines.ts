import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync, rmSync, statfsSync, symlinkSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { json } from './events.ts';
import { Network } from './network.ts';
import { freePort, newHome, Platform, ROOT, runProgram, type StartOptions } from './platform.ts';

const REDIS_PORT = 6379;
/** The machine with the gateway and Redis. */
export const FRONT = 'front';
/** Size of a machine's own disk, MiB. */
const DISK_MIB = 64;
const FILLER = 'filler';

export type Shape = Readonly<Record<string, 'runtime' | 'gpu-host'>>;

export interface MachinesOptions {
  readonly shape: Shape;
  /** Text of the first machine's pie.toml, or a function that makes it from this process's address. The other machines take over its settings. */
  readonly config?: string | ((outside: string) => string);
  /** The first machine's home, a new one by default. */
  readonly home?: string;
  /** Bundled functions that the first machine deploys. */
  readonly functions?: StartOptions['functions'];
  /** The folder of the code that machines run until they are upgraded; this clone by default. */
  readonly root?: string;
  /** Gives each machine but the first a small disk of its own, which tests can fill. */
  readonly disks?: boolean;
}

/** A platform of machines, each with a network namespace and a home of its own. `pie join` sets up all but the first. Needs root and `ip`. */
export class Machines implements AsyncDisposable {
  readonly network: Network;
  readonly shape: Shape;
  readonly #disks: boolean;
  readonly #root: string;
  readonly #homes = new Map<string, string>();
  /** Options with which each machine starts, also after an upgrade. */
  readonly #startOptions = new Map<string, StartOptions>();
  readonly #platforms = new Map<string, Platform>();
  #directory = '';
  #server: ChildProcess | undefined;
  #redis: Redis | undefined;

  private constructor({ shape, disks = false, root = ROOT }: MachinesOptions) {
    this.shape = shape;
    this.#disks = disks;
    this.#root = root;
    this.network = new Network([FRONT, ...Object.keys(shape)]);
    process.once('exit', this.#abandon);
  }

  /** Starts the first machine. `join` adds the others. */
  static async start(options: MachinesOptions): Promise<Machines> {
    const machines = new Machines(options);
    try {
      await machines.#start(options);
    } catch (error) {
      await machines[Symbol.asyncDispose]();
      throw error;
    }
    return machines;
  }

  get front(): Platform {
    return this.platform(FRONT);
  }

  /** The operator's connection to Redis. */
  get redis(): Redis {
    return this.#redis ?? assert.fail('Redis does not run');
  }

  platform(name: string): Platform {
    return this.#platforms.get(name) ?? assert.fail(`${name} does not run`);
  }

  async #start({ config, home, functions = ['text-completion'] }: MachinesOptions): Promise<void> {
    const { network } = this;
    const password = randomBytes(16).toString('hex');
    this.#directory = await mkdtemp(path.join(os.tmpdir(), 'pie-n-'));
    const frontAddress = network.address(FRONT);
    const [command = '', ...words] = network.on(FRONT);
    const server = ['redis-server', '--port', String(REDIS_PORT), '--bind', frontAddress, '--requirepass', password];
    this.#server = spawn(command, [...words, ...server, '--dir', this.#directory, '--save', ''], { stdio: 'ignore' });
    this.#redis = new Redis({ host: frontAddress, port: REDIS_PORT, password });
    this.#redis.on('error', () => undefined);
    await this.#redis.ping();
    this.#homes.set(FRONT, home ?? (await newHome()));
    this.#startOptions.set(FRONT, {
      functions,
      port: await freePort(),
      ...(config !== undefined && { config: typeof config === 'string' ? config : config(network.outside) }),
      env: {
        REDIS_URL: `redis://default:${password}@${frontAddress}:${REDIS_PORT}`,
        PIE_MACHINE: FRONT,
        PIE_ROLES: 'gateway',
        PIE_ADDRESS: frontAddress,
        PIE_HOST: frontAddress,
      },
    });
    await this.up(FRONT);
  }

  /** Joins all machines: first the GPU hosts, since a runtime serves only once it reaches a GPU host. */
  async joinAll(): Promise<void> {
    for (const role of ['gpu-host', 'runtime'])
      await Promise.all(Object.keys(this.shape).map((name) => this.shape[name] === role && this.join(name)));
  }

  /** Joins a machine with only a token, and starts it. @param root the folder of the machine's code */
  async join(name: string, root = this.#root): Promise<void> {
    const { network, front } = this;
    const role = this.shape[name] ?? assert.fail(`no machine ${name}`);
    const home = await newHome();
    this.#homes.set(name, home);
    if (this.#disks) await onOwnDisk(home);
    const created = await front.pie(['machines', 'token', '--role', role, '--json']);
    const { token } = JSON.parse(created.stdout) as { token: string };
    const [command = '', ...words] = network.on(name);
    const flags = ['--token', token, '--name', name, '--role', role, '--no-start'];
    const bin = path.join(root, 'gateway/cli/bin.js');
    const { code, stderr } = await runProgram(command, [...words, process.execPath, bin, 'join', front.url, ...flags], {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PIE_HOME: home },
      cwd: root,
    });
    assert.equal(code, 0, stderr);
    const settings = readFileSync(path.join(home, 'pie.toml'), 'utf8');
    assert.ok(settings.includes(network.address(name)), 'the machine finds its own address');
    this.#startOptions.set(name, { functions: false, root });
    await this.up(name);
  }

  /** Starts the first machine, or one that has joined. */
  async up(name: string): Promise<void> {
    const home = this.#homes.get(name) ?? assert.fail(`${name} has not joined`);
    const start = {
      root: this.#root,
      ...this.#startOptions.get(name),
      home,
      keepHome: true,
      on: this.network.on(name),
    };
    this.#platforms.set(name, await Platform.start(start));
    for (const platform of this.#platforms.values()) platform.gpuMachines = this.#gpuMachines();
  }

  /** Gives a machine other code, as operators do: drains the machine, stops it, starts it with the new code and ends the drain. */
  async upgrade(name: string, root: string): Promise<void> {
    const needsDrain = name !== FRONT;
    if (needsDrain) await this.#runMachinesCommand('drain', name, '--wait');
    assert.equal(await this.platform(name).stop('SIGTERM'), 0, `${name} stops`);
    this.#startOptions.set(name, { ...this.#startOptions.get(name), root });
    await this.up(name);
    if (needsDrain) await this.#runMachinesCommand('undrain', name);
  }

  async #runMachinesCommand(...words: string[]): Promise<void> {
    const { code, stderr } = await this.front.pie(['machines', ...words]);
    assert.equal(code, 0, stderr);
  }

  /** Names of the machines that have started. */
  get running(): string[] {
    return [...this.#platforms.keys()];
  }

  #gpuMachines(): Platform[] {
    return [...this.#platforms].flatMap(([name, platform]) => (this.shape[name] === 'gpu-host' ? [platform] : []));
  }

  /** Process ids of everything that runs on a machine, except sandboxes without a network. */
  pids(name: string): number[] {
    return this.network.pids(name).filter((pid) => pid !== process.pid);
  }

  signal(name: string, signal: NodeJS.Signals): void {
    for (const pid of this.pids(name)) {
      try {
        process.kill(pid, signal);
      } catch {
        // The process has ended meanwhile.
      }
    }
  }

  /** Leaves no byte free on a machine's disk. */
  fill(name: string): void {
    const home = this.#homes.get(name) ?? assert.fail(`${name} has no disk of its own`);
    const { bavail, bsize } = statfsSync(home);
    writeFileSync(path.join(home, FILLER), Buffer.alloc(bavail * bsize));
  }

  /** Undoes `fill`. */
  empty(name: string): void {
    rmSync(path.join(this.#homes.get(name) ?? '', FILLER), { force: true });
  }

  /** The machine whose runtime runs an invocation. */
  async runnerOf(id: string): Promise<string> {
    const runtimes = await this.redis.hgetall('pie:runtimes');
    const record = await this.redis.hgetall(`pie:invocation:${id}`);
    const { machine } = JSON.parse(runtimes[record.runtimeId ?? ''] ?? '{}') as { machine?: string };
    return machine ?? assert.fail(JSON.stringify(record));
  }

  async hasLiveRuntime(machine: string): Promise<boolean> {
    const { runtimes } = await json(await this.front.fetch('/v1/load'));
    return runtimes.some((each: { machine: string; alive: boolean }) => each.machine === machine && each.alive);
  }

  /** Ends the Redis server and unmounts the disks, which would outlive this process. */
  readonly #abandon = (): void => {
    this.#server?.kill('SIGKILL');
    if (!this.#disks) return;
    for (const [name, home] of this.#homes) if (name !== FRONT) execFileSync('umount', ['-l', home]);
  };

  async [Symbol.asyncDispose](): Promise<void> {
    process.off('exit', this.#abandon);
    const front = this.#platforms.get(FRONT);
    this.#platforms.delete(FRONT);
    await Promise.all([...this.#platforms.values()].map((machine) => machine[Symbol.asyncDispose]()));
    await front?.[Symbol.asyncDispose]();
    this.#redis?.disconnect();
    this.#server?.kill('SIGKILL');
    this.network[Symbol.dispose]();
    for (const [name, home] of this.#homes) {
      if (this.#disks && name !== FRONT) execFileSync('umount', ['-l', home]);
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    }
    if (this.#directory !== '') await rm(this.#directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Mounts a small disk at a new home and restores the home's link to the artifacts. */
async function onOwnDisk(home: string): Promise<void> {
  const artifacts = path.join(home, 'artifacts');
  const target = readlinkSync(artifacts);
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=700`, 'pie', home]);
  symlinkSync(target, artifacts);
}
