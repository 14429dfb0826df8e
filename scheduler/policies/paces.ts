/** Time by which a tenant may spend ahead of its rate before it must pause. */
const BURST_MS = 250;
/** A tenant counts as a neighbour for this long after its last work ended, since most clients come back. */
const NEIGHBOUR_MS = 10_000;

interface Tenant {
  workCount: number;
  /** Time at which the tenant's pace has caught up with its spending. */
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
 * Limits how fast tenants spend a shared resource. A tenant with neighbours is limited to a rate (the generic cell rate algorithm of ATM
 * networks, I.371); a tenant alone has no limit.
 */
export class Paces {
  readonly #unitsPerMs: number;
  readonly #clock: () => number;
  readonly #tenants = new Map<string, Tenant>();
  /** Number of tenants with work. */
  #activeTenantCount = 0;
  /** The last two tenants whose work ended, and when. Two suffice: at least one differs from the tenant that asks. */
  readonly #recentlyLeft = new Map<string, number>();

  /**
   * @param perSecond units per second of one tenant
   * @param clock milliseconds
   */
  constructor(perSecond: number, clock = () => performance.now()) {
    this.#unitsPerMs = perSecond / 1000;
    this.#clock = clock;
  }

  /** Tenants that have work, or whose pace has not caught up yet. */
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
        // A tenant without neighbours slows no other tenant.
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
