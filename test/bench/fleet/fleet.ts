import { setTimeout as sleep } from 'node:timers/promises';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { TestRedis } from '#scheduler/testing/redis.ts';

const MODEL = { name: 'simulated', contextLength: 8192, vocabularySize: 32_000, pageSize: 16, traits: [] };
const PAGES = 1024;
/** Runtimes and gateways that start at once. */
const CONCURRENT_STARTS = 50;
const CONCURRENT_SUBMITS = 64;
const LIMITS = { cpuMs: 10_000, wallMs: 600_000, memoryMb: 64, pages: 64, tokens: 1000 };
const DEADLINE_MS = 3_600_000;
/** Interval at which a runtime reads the load of its GPU host; see `ModelLoads`. */
const READ_LOAD_MS = 1000;
const FILLED_TIMEOUT_MS = 120_000;
const POLL_MS = 1000;
const FAST_POLL_MS = 10;
/** Long, since all simulated processes share one event loop, which lags more than the loops of separate processes. */
const CALL_DEADLINE_MS = 60_000;

export interface FleetSize {
  readonly runtimes: number;
  readonly tenants: number;
  readonly gateways: number;
  /** Slots of each runtime. */
  readonly slots: number;
}

/**
 * Runtimes and gateways without sandboxes and GPU hosts: each runtime describes a GPU host that does not exist. Connections, leases, renewals,
 * fetches, attempts and reapers are those of the platform. An invocation ends when `endOne` is called.
 */
export class Fleet implements AsyncDisposable {
  readonly size: FleetSize;
  readonly #gateways: Scheduler[] = [];
  readonly #closers: (() => Promise<void>)[] = [];
  /** Functions that end the running invocations, that of the oldest first. */
  readonly #running: (() => void)[] = [];
  readonly #log = new CollectedLog();
  #begun = 0;
  #ended = 0;
  #submitted = 0;
  #lost = 0;

  private constructor(size: FleetSize) {
    this.size = size;
  }

  static async start(redis: TestRedis, size: FleetSize): Promise<Fleet> {
    const fleet = new Fleet(size);
    try {
      for (let i = 0; i < size.gateways; i++) fleet.#startGateway(redis);
      await atOnce(CONCURRENT_STARTS, size.runtimes, (i) => fleet.#startRuntime(redis, i));
      return fleet;
    } catch (error) {
      await fleet[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The scheduler of a gateway. */
  get scheduler(): Scheduler {
    const [gateway] = this.#gateways;
    if (gateway === undefined) throw new Error('The fleet has no gateway.');
    return gateway;
  }

  get begun(): number {
    return this.#begun;
  }

  get ended(): number {
    return this.#ended;
  }

  /** Runtimes that were declared dead although they lived. */
  get lost(): number {
    return this.#lost;
  }

  /** Submits an invocation, by default of the tenant that comes next. */
  async submitOne(tenant = this.#submitted): Promise<void> {
    const number = this.#submitted++;
    await this.scheduler.submit({
      id: `inv-${number}`,
      tenant: `tenant-${tenant % this.size.tenants}`,
      function: 'story',
      version: 'v1',
      submittedAt: Date.now(),
      deadlineMs: DEADLINE_MS,
      restartable: false,
      input: '{}',
      limits: LIMITS,
      models: [MODEL.name],
    });
  }

  /** Submits until every slot that admission gives out is taken and every tenant has a queue. */
  async fill(): Promise<void> {
    const { runtimes, slots, tenants } = this.size;
    await atOnce(CONCURRENT_SUBMITS, runtimes * slots + tenants, () => this.submitOne());
    const until = performance.now() + FILLED_TIMEOUT_MS;
    // The slots are full when no invocation has begun during a whole interval.
    for (let begunBefore = -1; this.#begun === 0 || begunBefore !== this.#begun; ) {
      if (performance.now() > until) throw new Error('the slots did not fill');
      begunBefore = this.#begun;
      await sleep(POLL_MS);
    }
  }

  /** Submits an invocation of each of the first `tenants` tenants, `everyMs` apart, and waits until all have begun. Needs free slots. */
  async arrive(tenants: number, everyMs: number): Promise<void> {
    const before = this.#begun;
    const startMs = performance.now();
    const arriveOne = async (tenant: number) => {
      await sleep(Math.max(0, startMs + tenant * everyMs - performance.now()));
      await this.submitOne(tenant);
    };
    await Promise.all(Array.from({ length: tenants }, (_, tenant) => arriveOne(tenant)));
    await this.#until(() => this.#begun >= before + tenants, 'not all arrivals began');
  }

  /** Ends all running invocations. */
  async endAll(): Promise<void> {
    const until = this.#ended + this.#running.length;
    while (this.#running.length > 0) this.endOne();
    await this.#until(() => this.#ended >= until, 'not all invocations ended');
  }

  /** Ends the invocation that has run longest. */
  endOne(): void {
    this.#running.shift()?.();
  }

  async #until(condition: () => boolean, otherwise: string): Promise<void> {
    const until = performance.now() + FILLED_TIMEOUT_MS;
    while (!condition()) {
      if (performance.now() > until) throw new Error(otherwise);
      await sleep(FAST_POLL_MS);
    }
  }

  /** Reads the registry as a dashboard or a scrape of metrics does. */
  async readRegistry(): Promise<void> {
    await this.scheduler.runtimes.list();
  }

  /** @throws Error when the log has a record: the scheduler logs the errors that no caller sees */
  check(): void {
    if (this.#log.records.length > 0)
      throw new Error(`${this.#log.records.length} records in the log: ${this.#log.records[0]?.message}`, {
        cause: this.#log.errors[0],
      });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await atOnce(CONCURRENT_STARTS, this.#closers.length, (i) => this.#closers[i]?.() ?? Promise.resolve());
  }

  #open(redis: TestRedis): Scheduler {
    const scheduler = openScheduler({ connect: redis.connect, deadlineMs: CALL_DEADLINE_MS, log: this.#log });
    scheduler.reaper.start();
    return scheduler;
  }

  #startGateway(redis: TestRedis): void {
    const scheduler = this.#open(redis);
    this.#gateways.push(scheduler);
    this.#closers.push(() => scheduler.close());
  }

  async #startRuntime(redis: TestRedis, number: number): Promise<void> {
    const scheduler = this.#open(redis);
    this.#closers.push(() => scheduler.close());
    const { slots } = this.size;
    const host = `gpu-host-${number}`;
    const lease = await scheduler.runtimes.acquire({
      name: `runtime-${number}`,
      slots,
      reserve: 1 / 16,
      placement: 'invocation',
      models: [{ ...MODEL, pageCount: PAGES, host, hostId: `${host}~1` }],
    });
    lease.onLost(() => this.#lost++);
    const worker = scheduler.createWorker({
      lease,
      slots,
      begins: { most: () => slots, showsOwnEvents: false },
      run: async ({ id, fetchToken }, signal, begun) => {
        const { invocations } = scheduler;
        const attempt = await (begun?.() ?? invocations.beginAttempt(id, lease.id, undefined, fetchToken));
        if ('refused' in attempt) return attempt.refused;
        this.#begun++;
        const { promise, resolve } = Promise.withResolvers<void>();
        this.#running.push(resolve);
        signal.addEventListener('abort', () => resolve());
        await promise;
        if (signal.aborted) return undefined;
        await invocations.finish(id, attempt.epoch, attempt.nextSeq, { event: 'result', data: '{}' }, null);
        this.#ended++;
        return 'ended';
      },
    });
    let readAt = 0;
    const loadReadAt = () => {
      if (Date.now() - readAt >= READ_LOAD_MS) readAt = Date.now();
      return readAt;
    };
    lease.reportLoad(() => ({
      running: worker.running,
      models: [
        {
          model: MODEL.name,
          hostId: `${host}~1`,
          pages: PAGES,
          freePages: PAGES,
          cachedPages: 0,
          idlePages: 0,
          readAt: loadReadAt(),
          batchSize: 0,
          utilisation: 0,
          hitRate: 0,
          tokensPerSecond: 0,
          waitingCalls: 0,
          terminations: 0,
        },
      ],
    }));
    await worker.start();
  }
}

/** Calls `work` for each number below `count`, with at most `maxCalls` calls at once. */
async function atOnce(maxCalls: number, count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const callInTurn = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: maxCalls }, callInTurn));
}
