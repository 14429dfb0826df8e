import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { type LinkOptions, WorkerLink } from './worker-link.ts';

export interface WorkersOptions extends Omit<LinkOptions, 'name'> {
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
