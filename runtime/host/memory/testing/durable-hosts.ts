import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { TestGpuHost } from '#runtime/testing/gpu-host.ts';
import { TestInferlet } from '#runtime/testing/inferlet.ts';
import type { CopyBounds } from '#scheduler/exports/exports.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { DurableCopies, type DurableCopiesOptions } from '../durable-copies.ts';
import { type IoTurns, SharedDirectory } from '../shared-directory.ts';
import { SharedNames } from '../shared-names.ts';
import { until } from './calls.ts';

/** Options of {@link DurableHosts.at}. */
export interface AtOptions {
  readonly functionName?: string;
  /** The test's own tenant by default, see {@link DurableHosts.fresh}. */
  readonly tenant?: string;
  /** The hosts that the inferlet's runtime knows; all by default. */
  readonly hosts?: readonly string[];
  /** Limits of one tenant's durable copies; 8 copies and 1 MiB by default. */
  readonly bounds?: CopyBounds;
  /** Maximum bytes of one copy. */
  readonly largestBytes?: number;
  /** The turns in which the inferlet's runtime works on files of the shared directory; a new object by default. */
  readonly turns?: IoTurns;
  /** Replacements for some calls to the store's records of durable copies. */
  readonly records?: Partial<DurableCopiesOptions['records']>;
  /** Replaces the call that notes in the store which host owns a name. */
  readonly claim?: SharedNames['owners']['claim'];
}

/** GPU hosts with the same model, a Redis, and a directory that they share. */
export class DurableHosts {
  readonly scheduler: Scheduler;
  readonly directory: string;
  readonly #redis: TestRedis;
  readonly #hosts = new Map<string, TestGpuHost>();
  readonly #connections = new Map<string, GpuHostConnection>();
  /** Inferlets of the running test. */
  #opened: TestInferlet[] = [];
  /** Number of tests that have begun. */
  #tests = 0;
  /** Tenant of the running test. */
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

  /** Kills a host, and waits until its connection is closed. */
  async kill(name: string): Promise<void> {
    await this.host(name).kill();
    await until(() => !this.connection(name).connected);
  }

  /** Starts a host again with its present disk, and waits until it is connected. Kills it first if it runs. */
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

  /** Starts an inferlet at a host, with a runtime of its own. */
  async at(host: string, options: AtOptions = {}): Promise<TestInferlet> {
    const { functionName = 'maker', tenant = this.tenant, hosts = [...this.#connections.keys()] } = options;
    const { bounds = { copies: 8, bytes: 2 ** 20 }, largestBytes, turns, records: replaced = {} } = options;
    const directory = await SharedDirectory.open(this.directory, this.scheduler.durableNames, turns);
    const connections = hosts.map((name) => this.connection(name));
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
      { list: connections },
      new DurableCopies({ records, owners, directory, bounds, ...(largestBytes && { largestBytes }) }),
    );
    const id = `inferlet-${this.#tests}-${this.#opened.length}`;
    const made = new TestInferlet(this.connection(host), { id, tenant, functionName, services: { names } });
    this.#opened.push(made);
    return made;
  }

  /** Absolute paths of all files in the shared directory, of all tenants. */
  async files(): Promise<string[]> {
    const entries = await readdir(this.directory, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => path.join(parentPath, name));
  }

  /** Ends the inferlets of the test, restarts the hosts that it has killed, and deletes its files. */
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
