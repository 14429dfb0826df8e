import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Account } from './account.ts';
import { type Posted, type ThreadOptions, WorkerThread } from './thread.ts';

/** What a pool's workers do, and within which bounds. */
export interface PoolOptions extends Omit<ThreadOptions, 'readable'> {
  /** What new workers may read. */
  readonly readable: () => readonly string[];
  /** Worker threads at once. */
  readonly maxWorkers: number;
  /** Of them, those that stay when there is nothing to do. */
  readonly keptWorkers?: number;
  /** A worker beyond them that nobody uses for so long ends. */
  readonly idleMs: number;
  /** For one job, once its turn has come. */
  readonly deadlineMs: number;
  /** Bytes of jobs that wait or run, of all tenants; a fourth of them of one tenant. */
  readonly maxBytes: number;
  /** Whether a worker is ended when nobody wants its job any more; otherwise the job is done all the same. */
  readonly endCancelled: boolean;
}

/** What is to be done, for whom, and who answers for it. */
export interface Job<Request> extends Posted<Request> {
  readonly tenant: string;
  /** That it holds of this process until it is answered. */
  readonly bytes: number;
  readonly account: Pick<Account, 'charge' | 'refuse'>;
  /** Aborts when nobody wants it any more. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiting<Request, Value> extends Job<Request> {
  readonly resolve: (outcome: Outcome<Value>) => void;
  /** Where it is done, once its turn has come. */
  thread: WorkerThread<Request, Value> | undefined;
}

const CLOSED = handlerError('closed', 'the runtime is going down');
const CANCELLED = handlerError('cancelled', 'nobody waits for the answer any more');
/** A tenant may hold one part in so many of all bytes. */
const TENANT_SHARE = 4;

/** What a tenant has here. */
interface Tenant {
  bytes: number;
  /** Jobs that wait or run. */
  jobs: number;
  running: number;
}

/**
 * Does jobs that a stranger can make long or large in a few worker threads. Tenants take turns, one job each; while others wait none takes the
 * last worker.
 */
export class WorkerPool<Request, Value> {
  readonly #options: PoolOptions;
  /** Jobs that wait, by tenant; the tenant whose turn it is first. */
  readonly #waiting = new Map<string, Waiting<Request, Value>[]>();
  /** Those with jobs that wait or run. */
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;
  #busy = 0;
  /** Threads without a job, and when each is ended that does not stay. */
  readonly #idle = new Map<WorkerThread<Request, Value>, NodeJS.Timeout | undefined>();
  readonly #threads = new Set<WorkerThread<Request, Value>>();
  /** Threads that may not read what later ones may. */
  readonly #old = new WeakSet<WorkerThread<Request, Value>>();
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Worker threads that exist. */
  get workers(): number {
    return this.#threads.size;
  }

  /** Never rejects. `unavailable` when too much waits already, `limit-exceeded` for a job that takes too long or too much memory. */
  run(job: Job<Request>): Promise<Outcome<Value>> {
    const { bytes, signal } = job;
    const tenant = this.#tenants.get(job.tenant) ?? { bytes: 0, jobs: 0, running: 0 };
    const refused = this.#refuse(bytes, tenant);
    if (refused) return Promise.resolve(err(refused));
    this.#tenants.set(job.tenant, tenant);
    this.#bytes += bytes;
    tenant.bytes += bytes;
    tenant.jobs++;
    const { promise, resolve } = Promise.withResolvers<Outcome<Value>>();
    const waiting: Waiting<Request, Value> = { ...job, resolve, thread: undefined };
    const cancel = () => this.#cancel(waiting);
    signal?.addEventListener('abort', cancel);
    const line = this.#waiting.get(job.tenant) ?? [];
    line.push(waiting);
    this.#waiting.set(job.tenant, line);
    this.#next();
    return promise.finally(() => {
      signal?.removeEventListener('abort', cancel);
      this.#bytes -= bytes;
      tenant.bytes -= bytes;
      if (--tenant.jobs === 0) this.#tenants.delete(job.tenant);
    });
  }

  /** Replaces the workers, each once it has nothing to do: new ones may read what `readable` says now. */
  renew(): void {
    for (const thread of this.#threads) this.#old.add(thread);
    for (const [thread, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(thread);
      this.#end(thread);
    }
  }

  /** Ends all workers; what waits is answered `closed`. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const line of this.#waiting.values()) for (const { resolve } of line) resolve(err(CLOSED));
    this.#waiting.clear();
    for (const timer of this.#idle.values()) clearTimeout(timer);
    this.#idle.clear();
    await Promise.all([...this.#threads].map((thread) => thread.end()));
  }

  #refuse(bytes: number, tenant: Tenant): HandlerError | null {
    if (this.#closed) return CLOSED;
    const { maxBytes } = this.#options;
    const text = tenant.bytes + bytes > maxBytes / TENANT_SHARE ? "as many of this tenant's jobs" : 'as many jobs';
    if (this.#bytes + bytes <= maxBytes && tenant.bytes + bytes <= maxBytes / TENANT_SHARE) return null;
    return handlerError('unavailable', `${text} wait for a worker as may; try again later`);
  }

  #cancel(waiting: Waiting<Request, Value>): void {
    if (waiting.thread) {
      if (this.#options.endCancelled) waiting.thread.cancel(CANCELLED);
      return;
    }
    const line = this.#waiting.get(waiting.tenant) ?? [];
    const left = line.filter((other) => other !== waiting);
    if (left.length > 0) this.#waiting.set(waiting.tenant, left);
    else this.#waiting.delete(waiting.tenant);
    waiting.resolve(err(CANCELLED));
  }

  #next(): void {
    while (this.#busy < this.#options.maxWorkers) {
      const waiting = this.#take();
      if (!waiting) return;
      const refused = waiting.signal?.aborted ? CANCELLED : waiting.account.refuse();
      if (refused) waiting.resolve(err(refused));
      else void this.#run(waiting);
    }
  }

  /** The next job of the tenant whose turn it is, which then comes last. Who has all workers but one lets others go before. */
  #take(): Waiting<Request, Value> | undefined {
    const lines = [...this.#waiting];
    const most = Math.max(1, this.#options.maxWorkers - 1);
    const mayTake = ([tenant]: (typeof lines)[number]) => (this.#tenants.get(tenant)?.running ?? 0) < most;
    const next = lines.find(mayTake) ?? lines[0];
    if (!next) return undefined;
    const [tenant, line] = next;
    const waiting = line.shift();
    this.#waiting.delete(tenant);
    if (line.length > 0) this.#waiting.set(tenant, line);
    return waiting;
  }

  async #run(waiting: Waiting<Request, Value>): Promise<void> {
    const { account, resolve } = waiting;
    const tenant = this.#tenants.get(waiting.tenant);
    this.#busy++;
    if (tenant) tenant.running++;
    const thread = this.#thread();
    waiting.thread = thread;
    const outcome = await thread.run(waiting, this.#options.deadlineMs, (cpuMs) => account.charge(cpuMs));
    this.#busy--;
    if (tenant) tenant.running--;
    if (thread.ended || this.#closed || this.#old.has(thread)) this.#end(thread);
    else this.#rest(thread);
    resolve(outcome);
    this.#next();
  }

  #thread(): WorkerThread<Request, Value> {
    for (const [thread, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(thread);
      if (!thread.ended) return thread;
      this.#threads.delete(thread);
    }
    const made = new WorkerThread<Request, Value>({ ...this.#options, readable: this.#options.readable() });
    this.#threads.add(made);
    return made;
  }

  #rest(thread: WorkerThread<Request, Value>): void {
    const { keptWorkers = 0, idleMs } = this.#options;
    const mayEnd = () => this.#threads.size > keptWorkers;
    const end = () => {
      if (!mayEnd()) return;
      this.#idle.delete(thread);
      this.#end(thread);
    };
    this.#idle.set(thread, mayEnd() ? setTimeout(end, idleMs).unref() : undefined);
  }

  #end(thread: WorkerThread<Request, Value>): void {
    void thread.end().then(() => this.#threads.delete(thread));
  }
}
