/** Minimum time between the times at which two waiting deliveries of a tenant ask again. */
const MIN_SPACING_MS = 5;
/** Longest time that a delivery waits before it asks again. */
const MAX_WAIT_MS = 300_000;
/** Weight of the latest duration in the mean. */
const LATEST = 0.3;
/** Mean duration of a tenant's deliveries that is assumed before the first one ends. */
const FIRST_GUESS_MS = 50;

interface Tenant {
  active: number;
  meanMs: number;
  /** The latest time at which a waiting delivery was told to ask again, at most `MAX_WAIT_MS` ahead. */
  givenUntil: number;
}

/**
 * Bounds the concurrent deliveries of one tenant, so that a tenant with dead endpoints does not take all concurrent
 * deliveries of a gateway. A delivery beyond the bound learns when to ask again. The waits follow the speed of the
 * tenant's endpoints: deliveries to fast endpoints wait little, and deliveries to dead ones ask rarely. Pure: callers
 * pass the time.
 */
export class DeliverySlots {
  readonly #maxActive: number;
  readonly #tenants = new Map<string, Tenant>();

  /** @param maxActive concurrent deliveries of one tenant. */
  constructor(maxActive: number) {
    this.#maxActive = maxActive;
  }

  /** Number of tenants with stored state. */
  get size(): number {
    return this.#tenants.size;
  }

  /** 0 when the delivery may begin (call `leave` at its end), else the time to wait before asking again. */
  enter(tenant: string, nowMs: number): number {
    const state = this.#tenants.get(tenant) ?? { active: 0, meanMs: FIRST_GUESS_MS, givenUntil: nowMs };
    this.#tenants.set(tenant, state);
    if (state.active < this.#maxActive) {
      state.active += 1;
      return 0;
    }
    const spacingMs = Math.max(MIN_SPACING_MS, state.meanMs / this.#maxActive);
    // Each delivery that asks again gets a time behind all earlier ones. Without the bound `MAX_WAIT_MS`, an outage of the endpoints would therefore
    // delay deliveries for hours after its end.
    state.givenUntil = Math.min(Math.max(nowMs, state.givenUntil) + spacingMs, nowMs + MAX_WAIT_MS);
    return Math.ceil(state.givenUntil - nowMs);
  }

  leave(tenant: string, nowMs: number, tookMs: number): void {
    const state = this.#tenants.get(tenant);
    if (state === undefined) return;
    state.active -= 1;
    state.meanMs += (tookMs - state.meanMs) * LATEST;
    if (state.active === 0 && state.givenUntil <= nowMs) this.#tenants.delete(tenant);
  }
}
