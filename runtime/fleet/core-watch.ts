import type { CoreWeight } from '../sandboxes/core-weight.ts';
import {
  beginUse,
  type Change,
  type CoreUse,
  changesNow,
  inheritUse,
  nextUse,
  TENANT_MEMORY_MS,
  wantedWeight,
} from './core-policy.ts';
import type { CoreShares, Weighed } from './core-shares.ts';

/** Time between two looks. Each look reads the times of all sandboxes and changes weights. */
const LOOK_MS = 250;

/** The part of a sandbox that the core watch uses. */
export interface Computing {
  readonly tenant: string | null;
  /** True while the sandbox has no tenant and no launch waits for it. */
  readonly background?: boolean;
  readonly process: Weighed;
}

interface Known {
  /** Kept while the sandbox has a tenant: its process then stays the same, and each search for it takes several reads. */
  readonly process: Weighed;
  readonly tenant: string | null;
  readonly use: CoreUse;
  /** Weight that the kernel reported; null when the kernel was not asked since the last change. */
  weight: CoreWeight | null;
  triedAtMs: number;
}

/**
 * Lowers the weight of sandboxes that recently computed much, so that they yield, and later restores it (`core-policy.ts`). The kernel enforces
 * the weight, so the weight also binds a compromised sandbox that does not preempt its guests.
 */
export class CoreWatch {
  readonly #sandboxes: () => Iterable<Computing>;
  readonly #shares: CoreShares;
  readonly #known = new WeakMap<Computing, Known>();
  /** For each tenant, the use of the sandbox with the largest share. */
  readonly #tenants = new Map<string, CoreUse>();
  readonly #timer: NodeJS.Timeout;

  constructor(sandboxes: () => Iterable<Computing>, shares: CoreShares) {
    this.#sandboxes = sandboxes;
    this.#shares = shares;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#shares.close();
  }

  /** True when a tenant's sandboxes recently computed much. */
  isHeavy(tenant: string): boolean {
    return this.#tenants.get(tenant)?.heavy === true;
  }

  /** Applies the right weight at once when a sandbox has got its tenant, or when a launch begins to wait for the sandbox. */
  changed(sandbox: Computing): void {
    const known = this.#known.get(sandbox);
    if (known) known.weight = null;
    this.#look();
  }

  #look(): void {
    const now = performance.now();
    const changes: Change<Known>[] = [];
    for (const sandbox of this.#sandboxes()) {
      const known = this.#measure(sandbox, now);
      if (!known) continue;
      const weight = this.#wanted(sandbox, known);
      if (known.weight !== weight) known.weight = this.#shares.weight(known.process);
      if (known.weight !== null && known.weight !== weight) {
        changes.push({ sandbox: known, weight, triedAtMs: known.triedAtMs });
      }
    }
    for (const [tenant, { atMs }] of this.#tenants) if (now - atMs > TENANT_MEMORY_MS) this.#tenants.delete(tenant);
    for (const { sandbox: known, weight } of changesNow(changes)) {
      known.triedAtMs = now;
      known.weight = null;
      this.#shares.weigh(known.process, weight);
    }
  }

  /** Returns the weight that a sandbox should have. Also records its use when it is the largest of its tenant. */
  #wanted({ tenant, background }: Computing, { use }: Known): CoreWeight {
    if (tenant === null) return background ? 'background' : 'usual';
    const largestUse = this.#tenants.get(tenant);
    if (largestUse?.atMs !== use.atMs || largestUse.share < use.share) this.#tenants.set(tenant, use);
    return wantedWeight(use);
  }

  #measure(sandbox: Computing, now: number): Known | null {
    const { tenant } = sandbox;
    const known = this.#known.get(sandbox);
    // While a sandbox starts, the process that will run the guests may not exist yet.
    const process = known?.tenant ? known.process : { pid: sandbox.process.pid, group: sandbox.process.group };
    const times = this.#shares.times(process);
    if (!times) return null;
    const isSameTenant = tenant !== null && known?.tenant === tenant;
    const begun = () => inheritUse(beginUse(now, times), this.#tenants.get(tenant ?? ''));
    const use = isSameTenant ? nextUse(known.use, now, times) : begun();
    const { triedAtMs = Number.NEGATIVE_INFINITY } = known ?? {};
    // The shell that starts a sandbox may set its weight after this look. So each look asks the kernel until the sandbox has a tenant.
    const measured: Known = { process, tenant, use, weight: isSameTenant ? known.weight : null, triedAtMs };
    this.#known.set(sandbox, measured);
    return measured;
  }
}
