import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { json } from './events.ts';
import { Network } from './network.ts';
import { newHome, Platform, ROOT, runProgram } from './platform.ts';

const REDIS_PORT = 6379;
/** The machine with the gateway and Redis. */
export const FRONT = 'front';
/** Room on the disk of a machine that has one of its own, MiB. */
const DISK_MIB = 64;
const FILLER = 'filler';

export type Shape = Readonly<Record<string, 'runtime' | 'gpu-host'>>;

export interface MachinesOptions {
  readonly shape: Shape;
  /** Text of the first machine's pie.toml; its `[[model]]`s are those of all machines. */
  readonly config?: string;
  /** Gives each machine but the first a small disk of its own, which tests can fill. */
  readonly disks?: boolean;
}

/** A platform of machines with networks and homes of their own, each set up by `pie join` alone. Needs root and `ip`. */
export class Machines implements AsyncDisposable {
  readonly network: Network;
  readonly shape: Shape;
  readonly #disks: boolean;
  readonly #homes = new Map<string, string>();
  readonly #platforms = new Map<string, Platform>();
  #directory = '';
  #server: ChildProcess | undefined;
  #redis: Redis | undefined;

  private constructor({ shape, disks = false }: MachinesOptions) {
    this.shape = shape;
    this.#disks = disks;
    this.network = new Network([FRONT, ...Object.keys(shape)]);
    process.once('exit', this.#abandon);
  }

  /** Starts the first machine; the others `join`. */
  static async start(options: MachinesOptions): Promise<Machines> {
    const machines = new Machines(options);
    try {
      await machines.#start(options.config);
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

  async #start(config: string | undefined): Promise<void> {
    const { network } = this;
    const password = randomBytes(16).toString('hex');
    this.#directory = await mkdtemp(path.join(os.tmpdir(), 'pie-n-'));
    const at = network.address(FRONT);
    const [command = '', ...words] = network.on(FRONT);
    const server = ['redis-server', '--port', String(REDIS_PORT), '--bind', at, '--requirepass', password];
    this.#server = spawn(command, [...words, ...server, '--dir', this.#directory, '--save', ''], { stdio: 'ignore' });
    this.#redis = new Redis({ host: at, port: REDIS_PORT, password });
    this.#redis.on('error', () => undefined);
    await this.#redis.ping();
    const front = await Platform.start({
      functions: ['text-completion'],
      on: network.on(FRONT),
      ...(config !== undefined && { config }),
      env: {
        REDIS_URL: `redis://default:${password}@${at}:${REDIS_PORT}`,
        ...{ PIE_MACHINE: FRONT, PIE_ROLES: 'gateway', PIE_ADDRESS: at, PIE_HOST: at },
      },
    });
    this.#platforms.set(FRONT, front);
  }

  /** All machines join: first the GPU hosts, since a runtime serves once it reaches one. */
  async joinAll(): Promise<void> {
    for (const role of ['gpu-host', 'runtime'])
      await Promise.all(Object.keys(this.shape).map((name) => this.shape[name] === role && this.join(name)));
  }

  /** Joins with a token alone, and starts. */
  async join(name: string): Promise<void> {
    const { network, front } = this;
    const role = this.shape[name] ?? assert.fail(`no machine ${name}`);
    const home = await newHome();
    this.#homes.set(name, home);
    if (this.#disks) await onOwnDisk(home);
    const made = await front.pie(['machines', 'token', '--role', role, '--json']);
    const { token } = JSON.parse(made.stdout) as { token: string };
    const [command = '', ...words] = network.on(name);
    const flags = ['--token', token, '--name', name, '--role', role, '--no-start'];
    const bin = path.join(ROOT, 'gateway/cli/bin.js');
    const { code, stderr } = await runProgram(command, [...words, process.execPath, bin, 'join', front.url, ...flags], {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PIE_HOME: home },
      cwd: ROOT,
    });
    assert.equal(code, 0, stderr);
    const settings = readFileSync(path.join(home, 'pie.toml'), 'utf8');
    assert.ok(settings.includes(network.address(name)), 'the machine finds its own address');
    await this.up(name);
  }

  /** Starts a machine that has joined. */
  async up(name: string): Promise<void> {
    const home = this.#homes.get(name) ?? assert.fail(`${name} has not joined`);
    const platform = await Platform.start({ home, keepHome: true, functions: false, on: this.network.on(name) });
    this.#platforms.set(name, platform);
  }

  /** Process ids of everything that runs on a machine, but of sandboxes without a network. */
  pids(name: string): number[] {
    return this.network.pids(name).filter((pid) => pid !== process.pid);
  }

  signal(name: string, signal: NodeJS.Signals): void {
    for (const pid of this.pids(name)) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended meanwhile.
      }
    }
  }

  /** Leaves no byte free on a machine's disk. */
  fill(name: string): void {
    const home = this.#homes.get(name) ?? assert.fail(`${name} has no disk of its own`);
    const { bavail, bsize } = statfsSync(home);
    writeFileSync(path.join(home, FILLER), Buffer.alloc(bavail * bsize));
  }

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

  /** True while a runtime of the machine is alive. */
  async isThere(machine: string): Promise<boolean> {
    const { runtimes } = await json(await this.front.fetch('/v1/load'));
    return runtimes.some((each: { machine: string; alive: boolean }) => each.machine === machine && each.alive);
  }

  /** Ends the Redis server and unmounts the disks, which would outlive this process. */
  readonly #abandon = (): void => {
    this.#server?.kill('SIGKILL');
    if (!this.#disks) return;
    for (const home of this.#homes.values()) execFileSync('umount', ['-l', home]);
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
    for (const home of this.#homes.values()) {
      if (this.#disks) execFileSync('umount', ['-l', home]);
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    }
    if (this.#directory !== '') await rm(this.#directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Puts a new home onto a small disk of its own. */
async function onOwnDisk(home: string): Promise<void> {
  const artifacts = path.join(home, 'artifacts');
  const target = execFileSync('readlink', [artifacts], { encoding: 'utf8' }).trim();
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=700`, 'pie', home]);
  execFileSync('ln', ['-s', target, artifacts]);
}
