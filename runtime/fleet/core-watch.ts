import {
  beginUse,
  type Change,
  type CoreUse,
  changesNow,
  inheritUse,
  nextUse,
  TENANT_MEMORY_MS,
} from './core-policy.ts';
import type { CoreShares, Weighed } from './core-shares.ts';

const LOOK_MS = 500;

/** A sandbox, as far as its cores are concerned. */
export interface Computing {
  readonly tenant: string | null;
  readonly process: Weighed;
}

interface Known {
  /** A sandbox keeps its process, and finding it takes several reads. */
  readonly process: Weighed;
  use: CoreUse;
  /** By the kernel's word; null when it was not asked since the last change. */
  yields: boolean | null;
  triedAtMs: number;
}

/**
 * Makes sandboxes yield that computed much of late, and takes that back when they no more do (`core-policy.ts`). It is the kernel that makes them:
 * code that took a sandbox over, and follows no slices, is held by it, too.
 */
export class CoreWatch {
  readonly #sandboxes: () => Iterable<Computing>;
  readonly #shares: CoreShares;
  readonly #known = new WeakMap<Computing, Known>();
  /** The use of each tenant's sandbox that takes most of a core. */
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

  /** A sandbox has got its tenant: one that is to yield yields from the beginning. */
  settled(sandbox: Computing): void {
    if (this.#tenants.has(sandbox.tenant ?? '')) this.#look();
  }

  #look(): void {
    const now = performance.now();
    const changes: Change<Known>[] = [];
    for (const sandbox of this.#sandboxes()) {
      if (sandbox.tenant === null) continue;
      const known = this.#measure(sandbox, sandbox.tenant, now);
      if (!known) continue;
      const most = this.#tenants.get(sandbox.tenant);
      if (most?.atMs !== now || most.share < known.use.share) this.#tenants.set(sandbox.tenant, known.use);
      const { heavy } = known.use;
      if (known.yields !== heavy) known.yields = this.#shares.isHeavy(known.process);
      if (known.yields === !heavy) changes.push({ sandbox: known, heavy, triedAtMs: known.triedAtMs });
    }
    for (const [tenant, { atMs }] of this.#tenants) if (now - atMs > TENANT_MEMORY_MS) this.#tenants.delete(tenant);
    for (const { sandbox: known, heavy } of changesNow(changes)) {
      known.triedAtMs = now;
      known.yields = null;
      this.#shares.weigh(known.process, heavy);
    }
  }

  #measure(sandbox: Computing, tenant: string, now: number): Known | null {
    const known = this.#known.get(sandbox);
    const process = known?.process ?? { pid: sandbox.process.pid, group: sandbox.process.group };
    const times = this.#shares.times(process);
    if (!times) return null;
    if (known) {
      known.use = nextUse(known.use, now, times);
      return known;
    }
    const use = inheritUse(beginUse(now, times), this.#tenants.get(tenant));
    const begun: Known = { process, use, yields: null, triedAtMs: Number.NEGATIVE_INFINITY };
    this.#known.set(sandbox, begun);
    return begun;
  }
}
