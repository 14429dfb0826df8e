/** The demand for ready instances of one program, which several function versions may share. */
export interface PoolDemand {
  readonly key: string;
  /** Sum of `pool.min` over the manifests of all versions with this program. */
  readonly min: number;
  /** Expected number of simultaneous launches. */
  readonly burst: number;
  /** Milliseconds since the last launch, or since the program was loaded. */
  readonly idleMs: number;
  /** Memory of one ready instance. */
  readonly instanceBytes: number;
}

export interface SizingPolicy {
  readonly budgetBytes: number;
  /** A function without launches for this long keeps only its minimum. */
  readonly idleAfterMs: number;
  readonly maxPerFunction: number;
}

export const DEFAULT_SIZING: Omit<SizingPolicy, 'budgetBytes'> = {
  idleAfterMs: 10 * 60_000,
  maxPerFunction: 1024,
};

/**
 * Decides how many ready instances each program keeps: target numbers by key.
 *
 * A program in use gets as many as its largest recent burst of launches, but at least one and at least its minimum. A
 * program without a launch for `idleAfterMs` gets its minimum. No program gets more than `maxPerFunction`. A short
 * budget is spent in this order: first the minima, in rounds of one instance for each program, so that no tenant crowds
 * out another; then one instance for each program in use; then the bursts, the largest first.
 */
export function poolTargets(demands: readonly PoolDemand[], policy: SizingPolicy): Map<string, number> {
  const targets = new Map<string, number>();
  let remainingBytes = policy.budgetBytes;
  const grant = ({ key, instanceBytes }: PoolDemand, target: number): void => {
    const current = targets.get(key) ?? 0;
    const added = Math.max(0, Math.min(target - current, Math.floor(remainingBytes / Math.max(1, instanceBytes))));
    targets.set(key, current + added);
    remainingBytes -= added * instanceBytes;
  };
  grantMinima(demands, policy, grant);
  const active = demands.filter(({ idleMs }) => idleMs < policy.idleAfterMs);
  for (const demand of active) grant(demand, 1);
  for (const demand of [...active].sort((a, b) => b.burst - a.burst)) {
    grant(demand, Math.min(policy.maxPerFunction, Math.ceil(demand.burst)));
  }
  return targets;
}

function grantMinima(
  demands: readonly PoolDemand[],
  { budgetBytes, maxPerFunction }: SizingPolicy,
  grant: (demand: PoolDemand, target: number) => void,
): void {
  const asking = demands.map((demand) => ({ demand, min: Math.min(demand.min, maxPerFunction) }));
  const wantedBytes = asking.reduce((sum, { demand, min }) => sum + min * demand.instanceBytes, 0);
  // If the budget is short, each round gives every program one instance more, up to its minimum.
  const rounds = wantedBytes <= budgetBytes ? 1 : Math.max(...asking.map(({ min }) => min));
  for (let round = 1; round <= rounds; round++) {
    for (const { demand, min } of asking) grant(demand, wantedBytes <= budgetBytes ? min : Math.min(min, round));
  }
}

/** Largest recent value. It decays exponentially, so that a value that does not come again is forgotten within minutes. */
export class RecentPeak {
  readonly #timeConstantMs: number;
  #peak = 0;
  #peakAtMs = 0;

  constructor(timeConstantMs = 60_000) {
    this.#timeConstantMs = timeConstantMs;
  }

  add(value: number, nowMs: number): void {
    if (value < this.at(nowMs)) return;
    this.#peak = value;
    this.#peakAtMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#peak * Math.exp((this.#peakAtMs - nowMs) / this.#timeConstantMs);
  }
}

/** Largest recent burst of launches, counted in windows of a second. */
export class BurstSize {
  readonly #windowMs: number;
  readonly #largest: RecentPeak;
  #windowFromMs = Number.NEGATIVE_INFINITY;
  #count = 0;

  constructor(windowMs = 1000, timeConstantMs = 60_000) {
    this.#windowMs = windowMs;
    this.#largest = new RecentPeak(timeConstantMs);
  }

  arrive(nowMs: number): void {
    if (nowMs - this.#windowFromMs >= this.#windowMs) {
      this.#windowFromMs = nowMs;
      this.#count = 0;
    }
    this.#count++;
    this.#largest.add(this.#count, nowMs);
  }

  at(nowMs: number): number {
    return this.#largest.at(nowMs);
  }
}
