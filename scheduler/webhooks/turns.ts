const MIN_SPACING_MS = 5;
const MAX_WAIT_MS = 300_000;
/** Weight of the latest duration in the mean. */
const LATEST = 0.3;
const FIRST_GUESS_MS = 50;

interface Tenant {
  active: number;
  meanMs: number;
  /** Until then turns have been given out. */
  givenUntil: number;
}

/**
 * Bounds how many deliveries of one tenant are under way, so that dead endpoints of one take no places of others. Who has no place is told when
 * to come again: waits are spaced as fast as this tenant's endpoints answer, so that neither a quick one is kept waiting nor a dead one asked
 * about all the time. Pure: it knows no clock.
 */
export class Turns {
  readonly #most: number;
  readonly #tenants = new Map<string, Tenant>();

  /** @param most deliveries of one tenant at once. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Tenants that something is remembered of. */
  get size(): number {
    return this.#tenants.size;
  }

  /** 0 when the delivery may begin (`leave` ends it), else how long to wait before asking again. */
  enter(tenant: string, nowMs: number): number {
    const state = this.#tenants.get(tenant) ?? { active: 0, meanMs: FIRST_GUESS_MS, givenUntil: nowMs };
    this.#tenants.set(tenant, state);
    if (state.active < this.#most) {
      state.active += 1;
      return 0;
    }
    const spacingMs = Math.max(MIN_SPACING_MS, state.meanMs / this.#most);
    state.givenUntil = Math.max(nowMs, state.givenUntil) + spacingMs;
    return Math.min(Math.ceil(state.givenUntil - nowMs), MAX_WAIT_MS);
  }

  leave(tenant: string, nowMs: number, tookMs: number): void {
    const state = this.#tenants.get(tenant);
    if (state === undefined) return;
    state.active -= 1;
    state.meanMs += (tookMs - state.meanMs) * LATEST;
    if (state.active === 0 && state.givenUntil <= nowMs) this.#tenants.delete(tenant);
  }
}
