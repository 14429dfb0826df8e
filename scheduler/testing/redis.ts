import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { openConnection } from '../store/connection.ts';

export interface TestRedisOptions {
  /** Writes an append-only file, so that a restarted server keeps its data; false by default: nothing is written. */
  readonly appendOnly?: boolean;
  /** True for a test that calls `limitFiles`. */
  readonly limitedFiles?: boolean;
}

const READY_MS = 30_000;
/** Maximum wait for the server's last write before a kill. A server that is stopped (SIGSTOP) is killed without this write. */
const WRITTEN_MS = 20_000;

/**
 * A private `redis-server` on a unix socket in a temporary directory, for tests.
 *
 * @example
 * const redis = await TestRedis.start({ appendOnly: true });
 * after(() => redis.stop());
 * const scheduler = openScheduler({ connect: redis.connect, log: silentLog });
 */
export class TestRedis {
  /** Path of the unix socket. */
  readonly socket: string;
  readonly #directory: string;
  readonly #options: TestRedisOptions;
  readonly #connections = new Set<Redis>();
  #server: ChildProcess | undefined;

  private constructor(directory: string, options: TestRedisOptions) {
    this.#directory = directory;
    this.#options = options;
    this.socket = join(directory, 'redis.sock');
  }

  /** Starts a server and waits until it answers. */
  static async start(options: TestRedisOptions = {}): Promise<TestRedis> {
    const redis = new TestRedis(await mkdtemp(join(tmpdir(), 'pie-redis-')), options);
    await redis.restart();
    return redis;
  }

  /** Opens a connection; `stop` closes all connections opened here. */
  readonly connect = (): Redis => {
    const redis = openConnection(this.socket);
    this.#connections.add(redis);
    redis.once('end', () => this.#connections.delete(redis));
    return redis;
  };

  /** Process id of the server. */
  get pid(): number | undefined {
    return this.#server?.pid;
  }

  /** Ends the server with SIGKILL and waits for its exit. With an append-only file, acknowledged writes survive. */
  async kill(): Promise<void> {
    const server = this.#server;
    if (this.#options.appendOnly && isRunning(server)) await this.#write(server);
    await this.#end();
  }

  /** Lets no file of the server grow past `bytes`, until the next call or restart. Needs the program `prlimit`. */
  limitFiles(bytes: number | 'unlimited'): void {
    execFileSync('prlimit', [`--pid=${this.pid}`, `--fsize=${bytes}:`]);
  }

  /** Restarts the server with its saved data. */
  async restart(): Promise<void> {
    await this.kill();
    const { appendOnly, limitedFiles } = this.#options;
    const args = ['--port', '0', '--unixsocket', this.socket, '--dir', this.#directory, '--save', ''];
    args.push('--appendonly', appendOnly ? 'yes' : 'no', '--appendfsync', 'everysec', '--loglevel', 'warning');
    // A server that ignores SIGXFSZ survives a write beyond the limit of its files: the write fails, as on a full disk.
    const server = limitedFiles
      ? spawn('/bin/sh', ['-c', `trap '' XFSZ; exec redis-server "$@"`, 'redis-server', ...args], { stdio: 'ignore' })
      : spawn('redis-server', args, { stdio: 'ignore' });
    // A test process that dies takes its server with it.
    const killServer = () => server.kill('SIGKILL');
    process.once('exit', killServer);
    server.once('exit', () => process.off('exit', killServer));
    const failed = once(server, 'error').then(([error]) => {
      throw new Error('redis-server could not be started; is it installed and on PATH?', { cause: error });
    });
    failed.catch(() => undefined);
    this.#server = server;
    await Promise.race([failed, this.#untilAnswering()]);
  }

  /** Closes every connection, ends the server and removes its directory. */
  async stop(): Promise<void> {
    for (const connection of this.#connections) connection.disconnect();
    await this.#end();
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #end(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!isRunning(server)) return;
    const exited = once(server, 'exit');
    server.kill('SIGKILL');
    await exited;
  }

  /** Makes the server write the changes that it has acknowledged. With `everysec` and a slow disk, it may write them a second late. */
  async #write(server: ChildProcess): Promise<void> {
    const connection = openConnection(this.socket);
    const written = connection.config('SET', 'appendfsync', 'always').catch(() => undefined);
    try {
      await Promise.race([written, once(server, 'exit'), sleep(WRITTEN_MS, undefined, { ref: false })]);
    } finally {
      connection.disconnect();
    }
  }

  async #untilAnswering(): Promise<void> {
    const until = performance.now() + READY_MS;
    const probe = openConnection(this.socket);
    try {
      while (performance.now() < until) {
        if (probe.status === 'ready' && (await probe.ping().catch(() => '')) === 'PONG') return;
        await sleep(10);
      }
      throw new Error(`redis-server did not answer within ${READY_MS} ms.`);
    } finally {
      probe.disconnect();
    }
  }
}

const isRunning = (server: ChildProcess | undefined): server is ChildProcess =>
  server !== undefined && server.exitCode === null && server.signalCode === null;
