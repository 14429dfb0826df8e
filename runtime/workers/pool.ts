import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { patientTimer } from '../patient-timer.ts';
import { startConfinedThread, type Thread } from '../sandboxes/index.ts';
import type { Account } from './account.ts';
import type { Sent } from './serve.ts';

/** The program and the bounds of a pool's workers. */
export interface PoolOptions extends Omit<ThreadOptions, 'readable'> {
  /** Files and folders that new workers may read. */
  readonly readable: () => readonly string[];
  /** Maximum worker threads. */
  readonly maxWorkers: number;
  /** Number of worker threads that stay when idle. */
  readonly keptWorkers?: number;
  /** A worker beyond `keptWorkers` ends after this idle time. */
  readonly idleMs: number;
  /** Time limit of one job, from the start of its turn. */
  readonly deadlineMs: number;
  /** Maximum bytes of waiting and running jobs, of all tenants; one tenant may hold a fourth. */
  readonly maxBytes: number;
  /** True to end the worker of a cancelled job; otherwise the job runs to its end. */
  readonly endCancelled: boolean;
}

/** A job, with its tenant and the account that pays. */
export interface Job<Request> extends Posted<Request> {
  readonly tenant: string;
  /** Memory of this process that the job holds until it is answered. */
  readonly bytes: number;
  readonly account: Pick<Account, 'charge' | 'refuse'>;
  /** Aborts when the caller no longer waits for the job. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiting<Request, Value> extends Job<Request> {
  readonly resolve: (outcome: Outcome<Value>) => void;
  /** The thread that runs the job, once its turn has come. */
  thread: WorkerThread<Request, Value> | undefined;
}

const CLOSED = handlerError('closed', 'the runtime is going down');
const CANCELLED = handlerError('cancelled', 'the caller waits no more for the answer');
/** A tenant may hold `maxBytes / TENANT_SHARE`. */
const TENANT_SHARE = 4;

/** Counts of a tenant's jobs in the pool. */
interface Tenant {
  bytes: number;
  /** Jobs that wait or run. */
  jobs: number;
  running: number;
}

/**
 * Runs untrusted jobs, which may be long or large, in a few worker threads. Tenants take turns, one job each. A tenant that has all workers
 * but one does not get the last while other tenants wait.
 */
export class WorkerPool<Request, Value> {
  readonly #options: PoolOptions;
  /** Waiting jobs by tenant, in the order of the tenants' turns. */
  readonly #waitingJobs = new Map<string, Waiting<Request, Value>[]>();
  /** Tenants with waiting or running jobs. */
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;
  #busyCount = 0;
  /** Idle threads, each with the timer that ends it; a thread that stays has no timer. */
  readonly #idle = new Map<WorkerThread<Request, Value>, NodeJS.Timeout | undefined>();
  readonly #threads = new Set<WorkerThread<Request, Value>>();
  /** Threads from before the last `renew`, with outdated permissions. */
  readonly #outdated = new WeakSet<WorkerThread<Request, Value>>();
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Number of worker threads. */
  get workers(): number {
    return this.#threads.size;
  }

  /** Runs a job; never rejects. Returns `unavailable` when too many bytes wait, and `limit-exceeded` when the job takes too much time or memory. */
  run(job: Job<Request>): Promise<Outcome<Value>> {
    const { bytes, signal } = job;
    if (signal?.aborted) return Promise.resolve(err(CANCELLED));
    const tenant = this.#tenants.get(job.tenant) ?? { bytes: 0, jobs: 0, running: 0 };
    const refused = this.#refuse(bytes, tenant);
    if (refused) return Promise.resolve(err(refused));
    this.#tenants.set(job.tenant, tenant);
    this.#bytes += bytes;
    tenant.bytes += bytes;
    tenant.jobs++;
    const { promise, resolve: answer } = Promise.withResolvers<Outcome<Value>>();
    const cancel = () => this.#cancel(waiting);
    const resolve = (outcome: Outcome<Value>) => {
      // A later cancel must not end the thread, which may run the job of another tenant by then.
      signal?.removeEventListener('abort', cancel);
      answer(outcome);
    };
    const waiting: Waiting<Request, Value> = { ...job, resolve, thread: undefined };
    signal?.addEventListener('abort', cancel);
    const queue = this.#waitingJobs.get(job.tenant) ?? [];
    queue.push(waiting);
    this.#waitingJobs.set(job.tenant, queue);
    this.#startJobs();
    return promise.finally(() => {
      this.#bytes -= bytes;
      tenant.bytes -= bytes;
      if (--tenant.jobs === 0) this.#tenants.delete(job.tenant);
    });
  }

  /** Replaces each worker once it is idle: new workers may read what `readable` answers now. */
  renew(): void {
    for (const thread of this.#threads) this.#outdated.add(thread);
    for (const [thread, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(thread);
      this.#end(thread);
    }
  }

  /** Ends all workers; waiting jobs get `closed`. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const queue of this.#waitingJobs.values()) for (const { resolve } of queue) resolve(err(CLOSED));
    this.#waitingJobs.clear();
    for (const timer of this.#idle.values()) clearTimeout(timer);
    this.#idle.clear();
    await Promise.all([...this.#threads].map((thread) => thread.end()));
  }

  #refuse(bytes: number, tenant: Tenant): HandlerError | null {
    if (this.#closed) return CLOSED;
    const { maxBytes } = this.#options;
    const isOwnFault = tenant.bytes + bytes > maxBytes / TENANT_SHARE;
    if (this.#bytes + bytes <= maxBytes && !isOwnFault) return null;
    const jobs = isOwnFault ? 'jobs of this tenant' : 'jobs';
    return handlerError('unavailable', `too many ${jobs} wait for a worker; try again later`);
  }

  #cancel(waiting: Waiting<Request, Value>): void {
    if (waiting.thread) {
      if (this.#options.endCancelled) waiting.thread.cancel(CANCELLED);
      return;
    }
    const queue = this.#waitingJobs.get(waiting.tenant) ?? [];
    const remainingJobs = queue.filter((other) => other !== waiting);
    if (remainingJobs.length > 0) this.#waitingJobs.set(waiting.tenant, remainingJobs);
    else this.#waitingJobs.delete(waiting.tenant);
    waiting.resolve(err(CANCELLED));
  }

  #startJobs(): void {
    while (this.#busyCount < this.#options.maxWorkers) {
      const tenant = this.#nextTenant();
      const waiting = tenant === undefined ? undefined : this.#waitingJobs.get(tenant)?.[0];
      if (!waiting) return;
      const threadOrError = waiting.account.refuse() ?? this.#thread();
      // The job waits: each thread that finishes a job or ends calls this method again.
      if (threadOrError === null) return;
      this.#take(waiting.tenant);
      if (threadOrError instanceof WorkerThread) void this.#run(waiting, threadOrError);
      else waiting.resolve(err(threadOrError));
    }
  }

  /** The tenant whose turn it is. A tenant with all workers but one lets others go first. */
  #nextTenant(): string | undefined {
    const tenants = [...this.#waitingJobs.keys()];
    const maxRunning = Math.max(1, this.#options.maxWorkers - 1);
    return tenants.find((tenant) => (this.#tenants.get(tenant)?.running ?? 0) < maxRunning) ?? tenants[0];
  }

  /** Removes a tenant's first job from its queue. The tenant then goes last. */
  #take(tenant: string): void {
    const queue = this.#waitingJobs.get(tenant) ?? [];
    queue.shift();
    this.#waitingJobs.delete(tenant);
    if (queue.length > 0) this.#waitingJobs.set(tenant, queue);
  }

  async #run(waiting: Waiting<Request, Value>, thread: WorkerThread<Request, Value>): Promise<void> {
    const { account, resolve } = waiting;
    const tenant = this.#tenants.get(waiting.tenant);
    this.#busyCount++;
    if (tenant) tenant.running++;
    waiting.thread = thread;
    const outcome = await thread.run(waiting, this.#options.deadlineMs, (cpuMs) => account.charge(cpuMs));
    this.#busyCount--;
    if (tenant) tenant.running--;
    if (thread.ended || this.#closed || this.#outdated.has(thread)) this.#end(thread);
    else this.#keepIdle(thread);
    resolve(outcome);
    this.#startJobs();
  }

  /** An idle thread, or a new one. When no new one can start: null while another thread runs, so that jobs can wait for it, else an error. */
  #thread(): WorkerThread<Request, Value> | HandlerError | null {
    for (const [thread, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(thread);
      if (!thread.ended) return thread;
      this.#threads.delete(thread);
    }
    try {
      const newThread = new WorkerThread<Request, Value>({ ...this.#options, readable: this.#options.readable() });
      this.#threads.add(newThread);
      return newThread;
    } catch (error) {
      // The kernel may refuse a thread.
      if (this.#threads.size > 0) return null;
      return handlerError('unavailable', `the worker for ${this.#options.noun} cannot start: ${unexpected(error)}`);
    }
  }

  #keepIdle(thread: WorkerThread<Request, Value>): void {
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
    void thread.end().then(() => {
      this.#threads.delete(thread);
      // Jobs may wait because no further thread could start.
      this.#startJobs();
    });
  }
}

/** The program and the limits of a worker thread. */
export interface ThreadOptions {
  /** Module that calls `serve`. */
  readonly program: URL;
  /** Noun for a job in error messages, such as `the image`. */
  readonly noun: string;
  /** Files and folders that the thread may read; it has no other permissions. */
  readonly readable: readonly string[];
  /** JavaScript heap, MiB. */
  readonly heapMb: number;
}

/** Time limit for a worker's start, on a loaded machine. */
const START_MS = 10_000;

/** One job's turn in a worker. */
interface Turn<Value> {
  readonly deadlineMs: number;
  readonly resolve: (outcome: Outcome<Value>) => void;
  readonly charge: (cpuMs: number) => void;
}

/** A job as sent to a worker. */
export interface Posted<Request> {
  readonly request: Request;
  /** Buffers that are transferred to the worker. */
  readonly transfer?: readonly ArrayBuffer[];
}

/** A worker thread that runs one job at a time. Overrunning the deadline or crashing ends the thread and its job. */
export class WorkerThread<Request, Value> {
  readonly #noun: string;
  readonly #worker: Thread;
  readonly #exited: Promise<void>;
  #turn: Turn<Value> | undefined;
  /** Stops the timer of the worker's start, or of the current turn. */
  #stopTimer: () => void;
  #startedAt = performance.now();
  #ready = false;
  #ended = false;
  /** The job to send once the worker has started. */
  #posted: Posted<Request> | undefined;

  constructor({ program, noun, readable, heapMb }: ThreadOptions) {
    this.#noun = noun;
    this.#worker = startConfinedThread({
      program,
      name: noun,
      read: readable,
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 8 },
    });
    this.#worker.on('message', (sent: Sent<Value>) => this.#onMessage(sent));
    this.#worker.on('error', (error) => this.#end(this.#crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#end(this.#endedError());
        resolve();
      });
    });
    const startError = handlerError('unavailable', `the worker for ${noun} did not start`);
    this.#stopTimer = patientTimer(START_MS, () => this.#end(startError));
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Runs a job. The deadline begins when the worker gets it. */
  run(posted: Posted<Request>, deadlineMs: number, charge: (cpuMs: number) => void): Promise<Outcome<Value>> {
    return new Promise((resolve) => {
      if (this.#ended) {
        resolve(err(this.#endedError()));
        return;
      }
      this.#turn = { deadlineMs, resolve, charge };
      this.#posted = posted;
      if (this.#ready) this.#begin();
    });
  }

  /** Cancels the job: answers it with `why`, and ends the thread if the job has begun. */
  cancel(why: HandlerError): void {
    if (this.#posted === undefined) {
      if (this.#turn) this.#end(why);
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    this.#posted = undefined;
    turn?.resolve(err(why));
  }

  /** Ends the thread. Resolves when it has exited. */
  end(): Promise<void> {
    this.#end(handlerError('closed', 'the runtime is going down'));
    return this.#exited;
  }

  #begin(): void {
    const turn = this.#turn;
    const posted = this.#posted;
    if (!turn || !posted) return;
    this.#posted = undefined;
    this.#startedAt = performance.now();
    this.#worker.postMessage(posted.request, posted.transfer ?? []);
    this.#stopTimer = patientTimer(turn.deadlineMs, () => {
      if (this.#turn !== turn) return;
      const text = `${this.#noun} took more than ${turn.deadlineMs} ms; send a smaller one`;
      this.#end(handlerError('limit-exceeded', text));
    });
  }

  #onMessage(sent: Sent<Value>): void {
    if (this.#ended) return;
    this.#stopTimer();
    if (sent.tag === 'ready') {
      this.#ready = true;
      this.#begin();
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.charge(sent.cpuMs);
    const { outcome } = sent;
    // `unavailable`: the worker could not prepare, for example because a file of the model is missing. `unexpected` removes paths from the text.
    const isUnprepared = outcome.tag === 'err' && outcome.val.tag === 'unavailable';
    turn?.resolve(isUnprepared ? err(handlerError('unavailable', unexpected(outcome.val.val))) : outcome);
  }

  #end(why: HandlerError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stopTimer();
    void this.#worker.terminate();
    const turn = this.#turn;
    this.#turn = undefined;
    // Charge at most the deadline: the timer waits longer for a stalled process, and the guest does not pay for that.
    if (turn && this.#posted === undefined) turn.charge(Math.min(performance.now() - this.#startedAt, turn.deadlineMs));
    turn?.resolve(err(why));
  }

  #endedError(): HandlerError {
    return handlerError('unavailable', `the worker for ${this.#noun} ended; try again`);
  }

  #crash(error: unknown): HandlerError {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
      return handlerError('limit-exceeded', `${this.#noun} takes too much memory; send a smaller one`);
    }
    return handlerError('internal', `the worker for ${this.#noun} failed: ${unexpected(error)}`);
  }
}
