import { availableParallelism } from 'node:os';

/**
 * Events a second that one tenant may log for each core while others run: each costs the runtime, Redis and a gateway some 10 µs, so that a flood
 * takes a small part of a machine. A stream of tokens has 40 events a second.
 */
const EVENTS_PER_CORE = 2000;
/** Bytes that cost as much as an event: Redis takes 60 ms for a megabyte, its file included. */
const BYTES_OF_AN_EVENT = 512;
/** What a tenant may be ahead of its pace. */
const BURST_MS = 250;
/** A tenant counts as a neighbour for so long after its last attempt: most clients come again. */
const NEIGHBOUR_MS = 10_000;

interface Tenant {
  attempts: number;
  /** When it has paid for all that it logged. */
  paidAt: number;
}

/** The pace of one attempt's events, which it shares with all others of its tenant. */
export interface EventPace extends Disposable {
  /** Milliseconds to wait before the next events are written; 0 for none. */
  pauseMs(): number;
  /** So many events are about to be written. */
  spend(events: number, bytes: number): void;
}

/**
 * How fast tenants may log events: beside others at a rate (the generic cell rate algorithm of ATM networks, I.371), alone as fast as it goes.
 */
export class EventPaces {
  readonly #perMs: number;
  readonly #clock: () => number;
  readonly #tenants = new Map<string, Tenant>();
  /** Tenants with attempts. */
  #active = 0;
  /** The last two tenants whose attempts were all over, and when: one of them is another one. */
  readonly #left = new Map<string, number>();

  /**
   * @param perSecond events of one tenant
   * @param clock milliseconds
   */
  constructor(perSecond = EVENTS_PER_CORE * availableParallelism(), clock = () => performance.now()) {
    this.#perMs = perSecond / 1000;
    this.#clock = clock;
  }

  /** Tenants that have attempts, or have not paid yet. */
  get tenants(): number {
    return this.#tenants.size;
  }

  /** An attempt begins. Dispose its pace when it has ended. */
  enter(name: string): EventPace {
    const nowMs = this.#clock();
    for (const [other, { attempts, paidAt }] of this.#tenants)
      if (attempts === 0 && paidAt <= nowMs) this.#tenants.delete(other);
    const tenant = this.#tenants.get(name) ?? { attempts: 0, paidAt: nowMs };
    this.#tenants.set(name, tenant);
    if (tenant.attempts++ === 0) this.#active++;
    return {
      pauseMs: () => (this.#hasNeighbours(name) ? Math.max(0, tenant.paidAt - BURST_MS - this.#clock()) : 0),
      spend: (events, bytes) => {
        // Who disturbs nobody owes nothing.
        if (!this.#hasNeighbours(name)) return;
        const cost = events + bytes / BYTES_OF_AN_EVENT;
        tenant.paidAt = Math.max(this.#clock(), tenant.paidAt) + cost / this.#perMs;
      },
      [Symbol.dispose]: () => {
        if (--tenant.attempts > 0) return;
        this.#active--;
        this.#left.delete(name);
        this.#left.set(name, this.#clock());
        const [oldest] = this.#left.keys();
        if (this.#left.size > 2 && oldest !== undefined) this.#left.delete(oldest);
      },
    };
  }

  #hasNeighbours(name: string): boolean {
    if (this.#active > 1) return true;
    const nowMs = this.#clock();
    return [...this.#left].some(([other, leftAt]) => other !== name && nowMs - leftAt < NEIGHBOUR_MS);
  }
}
