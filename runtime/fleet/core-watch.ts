import { beginUse, type Change, type CoreUse, changesNow, nextUse } from './core-policy.ts';
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

  #look(): void {
    const now = performance.now();
    const changes: Change<Known>[] = [];
    for (const sandbox of this.#sandboxes()) {
      if (sandbox.tenant === null) continue;
      const known = this.#measure(sandbox, now);
      if (!known) continue;
      const { heavy } = known.use;
      if (known.yields !== heavy) known.yields = this.#shares.isHeavy(known.process);
      if (known.yields === !heavy) changes.push({ sandbox: known, heavy, triedAtMs: known.triedAtMs });
    }
    for (const { sandbox: known, heavy } of changesNow(changes)) {
      known.triedAtMs = now;
      known.yields = null;
      this.#shares.weigh(known.process, heavy);
    }
  }

  #measure(sandbox: Computing, now: number): Known | null {
    const known = this.#known.get(sandbox);
    const process = known?.process ?? { pid: sandbox.process.pid, group: sandbox.process.group };
    const times = this.#shares.times(process);
    if (!times) return null;
    if (known) {
      known.use = nextUse(known.use, now, times);
      return known;
    }
    const begun: Known = { process, use: beginUse(now, times), yields: null, triedAtMs: Number.NEGATIVE_INFINITY };
    this.#known.set(sandbox, begun);
    return begun;
  }
}
