import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { CopyBounds } from '#scheduler/exports/durable.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { TestGpuHost } from '../../../testing/gpu-host.ts';
import { TestInferlet } from '../../../testing/inferlet.ts';
import { DurableCopies, type DurableCopiesOptions } from '../durable-copies.ts';
import type { IoTurns } from '../io-turns.ts';
import { SharedDirectory } from '../shared-directory.ts';
import { SharedNames } from '../shared-names.ts';
import { until } from './calls.ts';

export interface AtOptions {
  readonly functionName?: string;
  readonly tenant?: string;
  /** The hosts of the platform; all by default. */
  readonly hosts?: readonly string[];
  readonly bounds?: CopyBounds;
  readonly largestBytes?: number;
  /** Makes the file operations. */
  readonly turns?: IoTurns;
  /** Replaces calls of the store. */
  readonly records?: Partial<DurableCopiesOptions['records']>;
  readonly claim?: SharedNames['owners']['claim'];
}

/** GPU hosts with the same model, a Redis, and a directory that they share. */
export class DurableHosts {
  readonly scheduler: Scheduler;
  readonly directory: string;
  readonly #redis: TestRedis;
  readonly #hosts = new Map<string, TestGpuHost>();
  readonly #connections = new Map<string, GpuHostConnection>();
  #opened: TestInferlet[] = [];
  #tests = 0;
  tenant = '';

  private constructor(redis: TestRedis, directory: string) {
    this.#redis = redis;
    this.directory = directory;
    this.scheduler = openTestScheduler(redis);
  }

  static async start(...names: readonly string[]): Promise<DurableHosts> {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-shared-'));
    const hosts = new DurableHosts(await TestRedis.start(), directory);
    for (const name of names) await hosts.add(name);
    return hosts;
  }

  /** Starts a host with an empty disk, in place of one of the same name. */
  async add(name: string): Promise<void> {
    this.#connections.get(name)?.close();
    await this.#hosts.get(name)?.stop();
    const host = await TestGpuHost.start({ name, seed: 7 });
    this.#hosts.set(name, host);
    this.#connections.set(name, await GpuHostConnection.connect(host.address, { name }));
  }

  async kill(name: string): Promise<void> {
    await this.host(name).kill();
    await until(() => !this.connection(name).connected);
  }

  async restart(name: string): Promise<void> {
    await this.host(name).restart();
    await until(() => this.connection(name).connected);
  }

  host(name: string): TestGpuHost {
    return this.#hosts.get(name)!;
  }

  connection(name: string): GpuHostConnection {
    return this.#connections.get(name)!;
  }

  /** Gives the next test a tenant of its own. */
  fresh(): void {
    this.tenant = `tenant-${++this.#tests}`;
  }

  /** An inferlet at a host, in a runtime of its own. */
  async at(host: string, options: AtOptions = {}): Promise<TestInferlet> {
    const { functionName = 'maker', tenant = this.tenant, hosts = [...this.#connections.keys()] } = options;
    const { bounds = { copies: 8, bytes: 2 ** 20 }, largestBytes, turns, records: replaced = {} } = options;
    const directory = await SharedDirectory.open(this.directory, this.scheduler.durableNames, turns);
    const list = hosts.map((name) => this.connection(name));
    const { durableNames: store, nameOwners } = this.scheduler;
    const owners: SharedNames['owners'] = {
      of: (...args) => nameOwners.of(...args),
      list: (...args) => nameOwners.list(...args),
      claim: options.claim ?? ((...args) => nameOwners.claim(...args)),
      release: (...args) => nameOwners.release(...args),
    };
    const records: DurableCopiesOptions['records'] = {
      look: (...args) => store.look(...args),
      list: (...args) => store.list(...args),
      keep: (...args) => store.keep(...args),
      remove: (...args) => store.remove(...args),
      drop: (...args) => store.drop(...args),
      forgotten: (...args) => store.forgotten(...args),
      ...replaced,
    };
    const names = new SharedNames(
      owners,
      { list },
      new DurableCopies({ records, owners, directory, bounds, ...(largestBytes && { largestBytes }) }),
    );
    const id = `inferlet-${this.#tests}-${this.#opened.length}`;
    const made = new TestInferlet(this.connection(host), { id, tenant, functionName, services: { names } });
    this.#opened.push(made);
    return made;
  }

  /** The files of all tenants, by path from the platform's folder. */
  async files(): Promise<string[]> {
    const found = await readdir(this.directory, { recursive: true, withFileTypes: true });
    return found.filter((entry) => entry.isFile()).map(({ parentPath, name }) => path.join(parentPath, name));
  }

  async endTest(): Promise<void> {
    await Promise.all(this.#opened.map((inferlet) => inferlet.end()));
    this.#opened = [];
    for (const [name, connection] of this.#connections) if (!connection.connected) await this.restart(name);
    for (const file of await this.files()) await rm(file);
  }

  async stop(): Promise<void> {
    for (const connection of this.#connections.values()) connection.close();
    for (const host of this.#hosts.values()) await host.stop();
    await this.scheduler.close();
    await this.#redis.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}
