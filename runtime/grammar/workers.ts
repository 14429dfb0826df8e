import { fileURLToPath } from 'node:url';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { packagePaths } from '#infra/install.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { patientTimer } from '../patient-timer.ts';
import { startConfinedThread, type Thread } from '../sandboxes/index.ts';
import type { Answer, Request, SentReply } from './messages.ts';
import type { Vocabulary } from './vocabulary.ts';

interface WorkersOptions extends Omit<LinkOptions, 'name'> {
  /** Maximum threads, one per tenant. */
  readonly maxWorkers: number;
  /** An idle worker ends after this time. */
  readonly idleMs: number;
  /** Longest wait of a tenant for a worker while other tenants have all workers. */
  readonly placeMs: number;
  /** Called when a tenant's worker ends, for any reason. */
  readonly onEnd: (tenant: string) => void;
}

const CLOSED = handlerError('closed', 'the grammar service is closed');
/** Reason to end a worker in favour of another tenant. The requests of the ended worker are made again in its tenant's next worker. */
export const MADE_ROOM = handlerError('unavailable', 'the grammar worker made room for another tenant');

/** While a tenant waits, turns are checked at least this often: the end of a turn is unknown while its worker is being set up. */
const CHECK_MS = 500;

/**
 * A worker that was used this recently keeps its turn even while no operation uses it. An inferlet that decodes uses its worker again after each
 * step of the device, and setting up another worker would take longer than the step.
 */
const REST_MS = 250;

/** A tenant's wait for its next worker. */
interface Waiting {
  /** Number of operations that wait for the worker. */
  users: number;
  readonly opened: Promise<Outcome<WorkerLink>>;
  readonly settle: (opened: Outcome<WorkerLink>) => void;
}

/**
 * A bounded number of worker threads, one for each tenant with grammars. While a tenant waits because the bound is reached, the least recently used
 * worker is ended. If all workers are in use, or were a moment ago, the worker that has served the longest is retired at the end of its turn. The
 * grammars and matchers of an ended worker are restored in the tenant's next worker when they are needed.
 */
export class Workers {
  readonly #options: WorkersOptions;
  /** The worker of each tenant that has one, in the order of their starts. */
  readonly #links = new Map<string, WorkerLink>();
  /** For each worker that no operation uses, the timer that will end it. */
  readonly #idle = new Map<WorkerLink, NodeJS.Timeout>();
  /** Ended and retired workers whose threads are still there. */
  readonly #ending = new Set<Promise<void>>();
  /** Tenants that wait for a worker, first come first served. */
  readonly #waiting = new Map<string, Waiting>();
  /** Checks the turns again while a tenant waits. */
  #nextTurn: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: WorkersOptions) {
    this.#options = options;
  }

  /** Number of threads. */
  get count(): number {
    return this.#links.size + this.#ending.size;
  }

  /** Runs `use` with the tenant's worker, which counts as used meanwhile. */
  async with<T>(tenant: string, use: (link: WorkerLink) => Promise<T>): Promise<Outcome<T>> {
    const acquired = await this.#hold(tenant);
    if (acquired.tag === 'err') return acquired;
    try {
      return ok(await use(acquired.val));
    } finally {
      this.#release(tenant, acquired.val);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const [tenant, link] of this.#links) this.#end(tenant, link, CLOSED);
    for (const { settle } of this.#waiting.values()) settle(err(CLOSED));
    await Promise.all(this.#ending);
  }

  #hold(tenant: string): Outcome<WorkerLink> | Promise<Outcome<WorkerLink>> {
    if (this.#closed) return err(CLOSED);
    const link = this.#links.get(tenant);
    if (link && !link.ended) {
      link.users += 1;
      clearTimeout(this.#idle.get(link));
      this.#idle.delete(link);
      return ok(link);
    }
    // This link has ended and keeps its first reason. The call only removes it.
    if (link) this.#end(tenant, link, CLOSED);
    const waiting = this.#waiting.get(tenant) ?? this.#wait(tenant);
    waiting.users += 1;
    this.#serve();
    return waiting.opened;
  }

  #wait(tenant: string): Waiting {
    const { promise, resolve } = Promise.withResolvers<Outcome<WorkerLink>>();
    const text = `all ${this.#options.maxWorkers} grammar workers are busy; try again later`;
    const timer = setTimeout(() => settle(err(handlerError('unavailable', text))), this.#options.placeMs);
    const settle = (opened: Outcome<WorkerLink>) => {
      clearTimeout(timer);
      this.#waiting.delete(tenant);
      resolve(opened);
    };
    const waiting = { users: 0, opened: promise, settle };
    this.#waiting.set(tenant, waiting);
    return waiting;
  }

  #release(tenant: string, link: WorkerLink): void {
    link.users -= 1;
    link.usedAt = performance.now();
    if (link.users > 0 || this.#links.get(tenant) !== link) return;
    if (link.ended) {
      this.#end(tenant, link, CLOSED);
      return;
    }
    this.#idle.set(link, this.#endLater(tenant, link));
    this.#serve();
  }

  /** Starts workers for waiting tenants up to the bound, and then makes room for the next tenant if another tenant's turn is over. */
  #serve(): void {
    clearTimeout(this.#nextTurn);
    for (const [tenant, { users, settle }] of this.#waiting) {
      if (this.count >= this.#options.maxWorkers) {
        this.#makeRoom();
        return;
      }
      try {
        const link = new WorkerLink({ ...this.#options, name: `grammar ${tenant}` });
        link.users = users;
        this.#links.set(tenant, link);
        settle(ok(link));
      } catch (error) {
        // The kernel may refuse a thread.
        const text = `a grammar worker cannot start: ${unexpected(error)}`;
        settle(err(handlerError('unavailable', text)));
      }
    }
  }

  /** Ends or retires a worker for each waiting tenant, or waits for the end of a turn. */
  #makeRoom(): void {
    while (this.#ending.size < this.#waiting.size && this.#links.size > 0) {
      const now = performance.now();
      const links = [...this.#links].map(([tenant, link]) => ({ tenant, link, waitMs: timeLeft(link, now) }));
      const removable = links.filter(({ waitMs }) => waitMs === 0);
      const [leastRecentlyUsed] = removable
        .filter(({ link }) => link.users === 0)
        .sort((a, b) => a.link.usedAt - b.link.usedAt);
      const [longestServing] = removable;
      if (leastRecentlyUsed) this.#end(leastRecentlyUsed.tenant, leastRecentlyUsed.link, MADE_ROOM);
      else if (longestServing) {
        const { tenant, link } = longestServing;
        this.#remove(tenant, link, link.retire(MADE_ROOM));
      } else {
        this.#nextTurn = setTimeout(() => this.#serve(), Math.min(CHECK_MS, ...links.map(({ waitMs }) => waitMs)));
        return;
      }
    }
  }

  #endLater(tenant: string, link: WorkerLink): NodeJS.Timeout {
    const end = () => this.#end(tenant, link, handlerError('unavailable', 'the grammar worker was unused'));
    return setTimeout(end, this.#options.idleMs).unref();
  }

  #end(tenant: string, link: WorkerLink, reason: HandlerError): void {
    if (this.#links.get(tenant) === link) this.#remove(tenant, link, link.end(reason));
  }

  #remove(tenant: string, link: WorkerLink, exited: Promise<void>): void {
    this.#links.delete(tenant);
    this.#options.onEnd(tenant);
    clearTimeout(this.#idle.get(link));
    this.#idle.delete(link);
    const removal = exited.then(() => {
      this.#ending.delete(removal);
      this.#serve();
    });
    this.#ending.add(removal);
  }
}

/** Milliseconds until a worker may make room. */
function timeLeft(link: WorkerLink, now: number): number {
  const turnLeftMs = link.turnLeft(now);
  return link.users > 0 ? turnLeftMs : Math.max(0, Math.min(turnLeftMs, link.usedAt + REST_MS - now));
}

/** Outcome of a request to a worker. */
export type LinkReply =
  | Outcome<Answer>
  /** No answer: the request was withdrawn, or the worker ended. `culprit` is true when this request ended the worker. */
  | { readonly tag: 'ended'; readonly culprit: boolean; readonly val: HandlerError };

/** The side for which a request is made, such as an inferlet. It pays for the request's CPU time. */
export interface Asker {
  /** Called when the request's turn comes. Returns null, or an error if the request is not wanted any more. */
  refuse(): HandlerError | null;
  /** Charges the CPU time of the worker's answer or, when no answer came, the elapsed time up to the deadline. */
  charge(cpuMs: number): void;
}

interface Pending {
  /** Null for the worker's start. */
  readonly request: Request | null;
  readonly asker: Asker;
  readonly deadlineMs: number;
  /** True when the same operation of an inferlet has made an earlier request, such as a compilation. */
  readonly isFollowUp: boolean;
  readonly resolve: (reply: LinkReply) => void;
}

interface LinkOptions {
  readonly name: string;
  /** JavaScript heap of the worker, MiB. */
  readonly heapMb: number;
  /** Time limit for the worker's start. */
  readonly startMs: number;
  /** Time for which the worker serves its tenant although other tenants wait. */
  readonly turnMs: number;
}

/** Stack of a worker, MiB. */
const STACK_MB = 4;
const PROGRAM = new URL('./matching/worker.ts', import.meta.url);
/** Files that a worker may read: its own code. */
const CODE = [
  ...['.', '../../gpu-host/protocol', '../../scheduler/functions/schema', '../../package.json'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  ),
  ...packagePaths('@cfworker/json-schema'),
];

/** The asker of requests that free memory. These are the platform's own requests, so no guest is charged. */
const PLATFORM: Asker = { refuse: () => null, charge: () => undefined };

/**
 * One worker thread. Requests go in order, but follow-up requests of an operation go first. The link sends a request after the previous answer,
 * and then starts the request's deadline. A worker that misses a deadline or crashes is ended, and all pending requests get the error. The request
 * at fault also pays for this worker's start and vocabularies.
 */
export class WorkerLink {
  readonly #worker: Thread;
  readonly #turnMs: number;
  readonly #pending: Pending[] = [];
  /** Answers to the vocabularies that were sent, by the vocabulary's id. */
  readonly #vocabularies = new Map<number, Promise<LinkReply>>();
  readonly #exited: Promise<void>;
  /** The asker of the worker's start and vocabularies. It sums up their CPU time, for which only a request that ends the worker pays. */
  readonly #setUp: Asker = { refuse: () => null, charge: (cpuMs) => (this.#setUpMs += cpuMs) };
  #setUpMs = 0;
  #clearDeadline: () => void = () => undefined;
  /** Time at which the deadline of the first pending request began, by `performance.now`. */
  #deadlineStartMs = 0;
  /** Time of the first answer to a guest, when the worker's turn begins; undefined while the worker is set up. */
  #servesSince: number | undefined;
  /** Set by `retire`: the reason for which the worker ends after its current request. */
  #retireReason: HandlerError | undefined;
  #endReason: HandlerError | undefined;
  /** Number of operations that need this worker; the `Workers` count them. */
  users = 0;
  /** End of the last such operation, in milliseconds of `performance.now`. */
  usedAt = 0;

  constructor({ name, heapMb, startMs, turnMs }: LinkOptions) {
    this.#turnMs = turnMs;
    this.#worker = startConfinedThread({
      program: PROGRAM,
      name,
      read: CODE,
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32, stackSizeMb: STACK_MB },
    });
    this.#worker.on('message', (sent: SentReply) => this.#onAnswer(sent));
    this.#worker.on('error', (error) => this.#fail(crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#fail(handlerError('unavailable', 'the grammar worker ended'));
        resolve();
      });
    });
    this.#push({ request: null, asker: this.#setUp, deadlineMs: startMs, isFollowUp: false, resolve: () => undefined });
  }

  get ended(): boolean {
    return this.#endReason !== undefined;
  }

  /** Milliseconds until the worker's turn is over, at the time `now`; infinite while the worker is set up. */
  turnLeft(now: number): number {
    return this.#servesSince === undefined
      ? Number.POSITIVE_INFINITY
      : Math.max(0, this.#servesSince + this.#turnMs - now);
  }

  /**
   * @param isFollowUp true when the same operation has made an earlier request, such as the compilation of its grammar. Follow-ups go before
   *   first requests: within one turn of the worker, some operations get their answers although others set up grammars and matchers.
   */
  request(request: Request, deadlineMs: number, asker = PLATFORM, isFollowUp = false): Promise<LinkReply> {
    if (this.#endReason) return Promise.resolve({ tag: 'ended', culprit: false, val: this.#endReason });
    return new Promise((resolve) => this.#push({ request, asker, deadlineMs, isFollowUp, resolve }));
  }

  /** Makes a model's vocabulary known to the worker, once. */
  learn(vocabulary: Vocabulary, deadlineMs: number): Promise<LinkReply> {
    let learned = this.#vocabularies.get(vocabulary.id);
    if (!learned) {
      learned = this.request({ kind: 'vocabulary', vocabulary }, deadlineMs, this.#setUp);
      this.#vocabularies.set(vocabulary.id, learned);
    }
    return learned;
  }

  /** Ends the worker now. Resolves when its thread is gone. */
  end(reason: HandlerError): Promise<void> {
    this.#end(reason);
    return this.#exited;
  }

  /** Ends the worker after its current request. Resolves when the thread is gone. */
  retire(reason: HandlerError): Promise<void> {
    this.#retireReason = reason;
    if (this.#pending.length === 0) this.#end(reason);
    return this.#exited;
  }

  #push(pending: Pending): void {
    // A follow-up goes before the first request that is not a follow-up, but never to the front: the worker already has the request there.
    const insertAt = pending.isFollowUp
      ? this.#pending.findIndex(({ isFollowUp }, index) => index > 0 && !isFollowUp)
      : -1;
    if (insertAt > 0) this.#pending.splice(insertAt, 0, pending);
    else this.#pending.push(pending);
    if (this.#pending.length === 1) this.#begin();
  }

  /** Sends the request whose turn it is, and starts its deadline. */
  #begin(): void {
    this.#clearDeadline();
    const next = this.#firstWanted();
    if (!next) return;
    this.#deadlineStartMs = performance.now();
    if (next.request) this.#worker.postMessage(next.request);
    this.#clearDeadline = patientTimer(next.deadlineMs, () => {
      if (this.#pending[0] !== next) return;
      const text = `the grammar took more than ${next.deadlineMs} ms; use a simpler one`;
      this.#fail(handlerError('limit-exceeded', text));
    });
  }

  /** The first pending request that is not withdrawn. */
  #firstWanted(): Pending | undefined {
    for (let [next] = this.#pending; next; [next] = this.#pending) {
      const refused = next.asker.refuse();
      if (!refused) return next;
      this.#pending.shift();
      next.resolve({ tag: 'ended', culprit: false, val: refused });
    }
    return undefined;
  }

  #onAnswer({ reply, cpuMs }: SentReply): void {
    if (this.#endReason) return;
    const answeredRequest = this.#pending.shift();
    answeredRequest?.asker.charge(cpuMs);
    if (answeredRequest && answeredRequest.asker !== this.#setUp && answeredRequest.asker !== PLATFORM)
      this.#servesSince ??= performance.now();
    if (this.#retireReason) this.#end(this.#retireReason);
    else this.#begin();
    answeredRequest?.resolve(reply);
  }

  /** Ends the worker because of its current request, which pays for the time since its deadline began. */
  #fail(reason: HandlerError): void {
    const [culprit] = this.#pending;
    if (this.#endReason) return;
    this.#pending.shift();
    // When this process stalls, the timer fires late. The guest does not pay for the delay.
    const elapsedMs = Math.min(performance.now() - this.#deadlineStartMs, culprit?.deadlineMs ?? 0);
    culprit?.asker.charge(elapsedMs + this.#setUpMs);
    this.#end(reason);
    culprit?.resolve({ tag: 'ended', culprit: true, val: reason });
  }

  #end(reason: HandlerError): void {
    if (this.#endReason) return;
    this.#endReason = reason;
    this.#clearDeadline();
    void this.#worker.terminate();
    for (const { resolve } of this.#pending.splice(0)) resolve({ tag: 'ended', culprit: false, val: reason });
  }
}

function crash(error: unknown): HandlerError {
  if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return handlerError('limit-exceeded', 'the grammar takes too much memory; use a smaller one');
  }
  return handlerError('internal', `the grammar worker failed: ${unexpected(error)}`);
}
