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

interface Tenant {
  attempts: number;
  /** When it has paid for all that it logged. */
  paidAt: number;
}

/** The pace of one attempt's events, which it shares with all others of its tenant. */
export interface EventPace extends Disposable {
  /** Milliseconds to wait before the next events are written; 0 for none. */
  pauseMs(nowMs: number): number;
  /** So many events are about to be written. */
  spend(events: number, bytes: number, nowMs: number): void;
}

/**
 * How fast tenants may log events: beside others at a rate (the generic cell rate algorithm of ATM networks, I.371), alone as fast as it goes. Pure:
 * times are passed in.
 */
export class EventPaces {
  readonly #perMs: number;
  readonly #tenants = new Map<string, Tenant>();
  /** Tenants with attempts. */
  #active = 0;

  /** @param perSecond events of one tenant */
  constructor(perSecond = EVENTS_PER_CORE * availableParallelism()) {
    this.#perMs = perSecond / 1000;
  }

  /** Tenants that have attempts, or have not paid yet. */
  get tenants(): number {
    return this.#tenants.size;
  }

  /** An attempt begins. Dispose its pace when it has ended. */
  enter(name: string, nowMs: number): EventPace {
    for (const [other, { attempts, paidAt }] of this.#tenants)
      if (attempts === 0 && paidAt <= nowMs) this.#tenants.delete(other);
    const tenant = this.#tenants.get(name) ?? { attempts: 0, paidAt: nowMs };
    this.#tenants.set(name, tenant);
    if (tenant.attempts++ === 0) this.#active++;
    return {
      pauseMs: (now) => (this.#active > 1 ? Math.max(0, tenant.paidAt - BURST_MS - now) : 0),
      spend: (events, bytes, now) => {
        // Who disturbs nobody owes nothing.
        if (this.#active <= 1) return;
        const cost = events + bytes / BYTES_OF_AN_EVENT;
        tenant.paidAt = Math.max(now, tenant.paidAt) + cost / this.#perMs;
      },
      [Symbol.dispose]: () => {
        if (--tenant.attempts === 0) this.#active--;
      },
    };
  }
}
