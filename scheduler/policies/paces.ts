/** A tenant may spend at once as many units as its rate allows in this time; beyond that it must pause. */
const BURST_MS = 250;
/** Other tenants count a tenant as a neighbour for this long after its last work ended, because most clients come back soon. */
const NEIGHBOUR_MS = 10_000;

interface Tenant {
  /** Number of pieces of work that have not ended. */
  workCount: number;
  /** Time at which the tenant's rate will have covered all that the tenant spent. */
  paidAt: number;
}

/** The pace of one piece of work, such as an attempt or a request. All work of a tenant shares it. */
export interface Pace extends Disposable {
  /** Milliseconds to wait before the work spends its next units; 0 for none. */
  pauseMs(): number;
  /** Records units that the work is about to spend. */
  spend(units: number): void;
}

/**
 * Limits how fast tenants spend a shared resource. While other tenants (neighbours) have work, or had work a short while ago, a tenant is limited to
 * a rate (the generic cell rate algorithm of ATM networks, I.371). A tenant alone has no limit.
 */
export class Paces {
  readonly #unitsPerMs: number;
  readonly #clock: () => number;
  readonly #tenants = new Map<string, Tenant>();
  /** Number of tenants with work. */
  #activeTenantCount = 0;
  /** The last two tenants whose work ended, to the time of that end. Two suffice, because at least one differs from the tenant that spends. */
  readonly #recentlyLeft = new Map<string, number>();

  /**
   * @param perSecond units that one tenant may spend per second
   * @param clock returns the time in milliseconds
   */
  constructor(perSecond: number, clock = () => performance.now()) {
    this.#unitsPerMs = perSecond / 1000;
    this.#clock = clock;
  }

  /** Number of tenants that have work, or whose rate has not covered their spending yet. */
  get tenants(): number {
    return this.#tenants.size;
  }

  /** Begins a piece of work. Dispose of its pace once, when the work has ended. */
  enter(name: string): Pace {
    const nowMs = this.#clock();
    for (const [other, { workCount, paidAt }] of this.#tenants)
      if (workCount === 0 && paidAt <= nowMs) this.#tenants.delete(other);
    const tenant = this.#tenants.get(name) ?? { workCount: 0, paidAt: nowMs };
    this.#tenants.set(name, tenant);
    if (tenant.workCount++ === 0) this.#activeTenantCount++;
    return {
      pauseMs: () => (this.#hasNeighbours(name) ? Math.max(0, tenant.paidAt - BURST_MS - this.#clock()) : 0),
      spend: (units) => {
        // Spending without neighbours does not count, because it slows no other tenant.
        if (!this.#hasNeighbours(name)) return;
        tenant.paidAt = Math.max(this.#clock(), tenant.paidAt) + units / this.#unitsPerMs;
      },
      [Symbol.dispose]: () => {
        if (--tenant.workCount > 0) return;
        this.#activeTenantCount--;
        this.#recentlyLeft.delete(name);
        this.#recentlyLeft.set(name, this.#clock());
        const [oldest] = this.#recentlyLeft.keys();
        if (this.#recentlyLeft.size > 2 && oldest !== undefined) this.#recentlyLeft.delete(oldest);
      },
    };
  }

  #hasNeighbours(name: string): boolean {
    if (this.#activeTenantCount > 1) return true;
    const nowMs = this.#clock();
    return [...this.#recentlyLeft].some(([other, leftAt]) => other !== name && nowMs - leftAt < NEIGHBOUR_MS);
  }
}
