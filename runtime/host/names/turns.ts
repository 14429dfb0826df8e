import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';

/** Maximum transfers at once, of one tenant and of all tenants: each transfer has two pieces in memory. */
const MAX_TENANT = 2;
const MAX_ALL = 8;
/** Longest wait for a turn. */
const WAIT_MS = 60_000;

interface Waiting {
  readonly begin: () => void;
}

/** Bounds the transfers of saved pages. Tenants whose transfers wait take turns. */
export class TransferTurns {
  readonly #running = new Map<string, number>();
  /** Waiting transfers by tenant, none empty; the tenant whose turn comes next is first. */
  readonly #waiting = new Map<string, Set<Waiting>>();
  readonly #waitMs: number;
  #total = 0;

  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Transfers that run or wait. */
  get size(): number {
    let size = this.#total;
    for (const { size: waiting } of this.#waiting.values()) size += waiting;
    return size;
  }

  /** Makes a transfer when the tenant's turn comes; answers an error when that takes too long, or the signal aborts first. */
  async during<T>(tenant: string, signal: AbortSignal, transfer: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    if (signal.aborted) return err(STOPPED);
    if (this.#waiting.has(tenant) || !this.#mayRun(tenant)) {
      const refused = await this.#waitForTurn(tenant, signal);
      if (refused) return err(refused);
    } else this.#enter(tenant);
    try {
      return await transfer();
    } finally {
      this.#leave(tenant);
    }
  }

  #mayRun(tenant: string): boolean {
    return this.#total < MAX_ALL && (this.#running.get(tenant) ?? 0) < MAX_TENANT;
  }

  #enter(tenant: string): void {
    this.#total++;
    this.#running.set(tenant, (this.#running.get(tenant) ?? 0) + 1);
  }

  #leave(tenant: string): void {
    this.#total--;
    const remaining = (this.#running.get(tenant) ?? 0) - 1;
    if (remaining > 0) this.#running.set(tenant, remaining);
    else this.#running.delete(tenant);
    // A tenant that gets a turn goes behind the others, where this loop meets it again.
    for (const [nextTenant, waiting] of this.#waiting) {
      if (this.#total >= MAX_ALL) return;
      const [first] = waiting;
      if (!first || !this.#mayRun(nextTenant)) continue;
      this.#waiting.delete(nextTenant);
      waiting.delete(first);
      if (waiting.size > 0) this.#waiting.set(nextTenant, waiting);
      this.#enter(nextTenant);
      first.begin();
    }
  }

  #waitForTurn(tenant: string, signal: AbortSignal) {
    return new Promise<HandlerError | null>((resolve) => {
      const end = (why: HandlerError | null): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        resolve(why);
      };
      const leave = (why: HandlerError): void => {
        const queue = this.#waiting.get(tenant);
        queue?.delete(waiting);
        if (queue?.size === 0) this.#waiting.delete(tenant);
        end(why);
      };
      const waiting: Waiting = { begin: () => end(null) };
      const onAbort = () => leave(STOPPED);
      const timer = setTimeout(() => leave(TOO_MANY), this.#waitMs);
      signal.addEventListener('abort', onAbort);
      const queue = this.#waiting.get(tenant);
      if (queue) queue.add(waiting);
      else this.#waiting.set(tenant, new Set([waiting]));
    });
  }
}

const STOPPED = handlerError('cancelled', 'the inferlet was stopped before its pages were fetched');
const TOO_MANY = handlerError(
  'unavailable',
  'too many saved contexts are being fetched from other GPU hosts; try again, or place the function where they are',
);
