import { type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { type LinkOptions, WorkerLink } from './worker-link.ts';

export interface WorkersOptions extends Omit<LinkOptions, 'name'> {
  /** Most threads, one per tenant. */
  readonly maxWorkers: number;
  /** An idle worker ends after this time. */
  readonly idleMs: number;
  /** Longest wait for a place when all workers are busy. */
  readonly placeMs: number;
  /** Called when a tenant's worker ends, for any reason. */
  readonly onEnd: (tenant: string) => void;
}

const CLOSED = handlerError('closed', 'the grammar service is closed');

/**
 * A bounded number of worker threads, one for each tenant that needs one. When all places are taken, the least recently used worker is
 * ended; its grammars and matchers are restored when they are needed.
 */
export class Workers {
  readonly #options: WorkersOptions;
  readonly #links = new Map<string, WorkerLink>();
  readonly #idle = new Map<WorkerLink, NodeJS.Timeout>();
  /** Ended workers whose threads are still there. */
  readonly #ending = new Set<Promise<void>>();
  /** Callbacks of tenants that wait for a place. */
  readonly #waiting: (() => void)[] = [];
  #closed = false;

  constructor(options: WorkersOptions) {
    this.#options = options;
  }

  /** Number of threads. */
  get count(): number {
    return this.#links.size + this.#ending.size;
  }

  /** Runs `use` with the tenant's worker, which is not evicted meanwhile. */
  async with<T>(tenant: string, use: (link: WorkerLink) => Promise<T>): Promise<Outcome<T>> {
    const link = await this.#link(tenant);
    if (link.tag === 'err') return link;
    const { val } = link;
    this.#hold(val);
    try {
      return ok(await use(val));
    } finally {
      this.#release(tenant, val);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const [tenant, link] of this.#links) this.#end(tenant, link, CLOSED);
    for (const wake of this.#waiting.splice(0)) wake();
    await Promise.all(this.#ending);
  }

  async #link(tenant: string): Promise<Outcome<WorkerLink>> {
    const until = performance.now() + this.#options.placeMs;
    for (;;) {
      if (this.#closed) return { tag: 'err', val: CLOSED };
      const known = this.#links.get(tenant);
      if (known && !known.ended) return ok(known);
      if (known) this.#end(tenant, known, CLOSED);
      if (this.count < this.#options.maxWorkers) {
        const made = new WorkerLink({ ...this.#options, name: `grammar ${tenant}` });
        this.#links.set(tenant, made);
        return ok(made);
      }
      const left = until - performance.now();
      if (left <= 0) {
        const text = `all ${this.#options.maxWorkers} grammar workers are busy; try again later`;
        return { tag: 'err', val: handlerError('unavailable', text) };
      }
      this.#evict();
      await this.#place(left);
    }
  }

  /** Ends the least recently used worker, if any is unused. */
  #evict(): void {
    const unused = [...this.#links].filter(([, link]) => link.users === 0);
    const [oldest] = unused.sort(([, a], [, b]) => a.usedAt - b.usedAt);
    if (oldest && this.#ending.size === 0)
      this.#end(...oldest, handlerError('unavailable', 'the grammar worker made room'));
  }

  /** Resolves when a place may be free, or after `waitMs`. */
  #place(waitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(wake), 1);
        resolve();
      }, waitMs);
      this.#waiting.push(wake);
    });
  }

  #hold(link: WorkerLink): void {
    link.users += 1;
    clearTimeout(this.#idle.get(link));
    this.#idle.delete(link);
  }

  #release(tenant: string, link: WorkerLink): void {
    link.users -= 1;
    link.usedAt = performance.now();
    if (link.users > 0) return;
    if (link.ended) this.#end(tenant, link, CLOSED);
    else this.#idle.set(link, this.#endLater(tenant, link));
    this.#waiting.shift()?.();
  }

  #endLater(tenant: string, link: WorkerLink): NodeJS.Timeout {
    const end = () => this.#end(tenant, link, handlerError('unavailable', 'the grammar worker was unused'));
    return setTimeout(end, this.#options.idleMs).unref();
  }

  #end(tenant: string, link: WorkerLink, reason: HandlerError): void {
    if (this.#links.get(tenant) !== link) return;
    this.#links.delete(tenant);
    this.#options.onEnd(tenant);
    clearTimeout(this.#idle.get(link));
    this.#idle.delete(link);
    const gone = link.end(reason).then(() => {
      this.#ending.delete(gone);
      this.#waiting.shift()?.();
    });
    this.#ending.add(gone);
  }
}
