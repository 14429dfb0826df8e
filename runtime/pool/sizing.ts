/**
 * How many ready instances each function keeps. Pure.
 *
 * A function gets what arrives in the time that making instances takes to catch up, never less than its manifest's minimum, and one while
 * it is in use at all. When the memory budget is short, minima come first, in the order given, then the rest by arrival rate.
 */
export interface PoolDemand {
  readonly key: string;
  /** `pool.min` of the manifest. */
  readonly min: number;
  /** Launches a second, lately. */
  readonly rate: number;
  /** Milliseconds since the last launch or since it was loaded. */
  readonly idleMs: number;
  /** Memory of one ready instance. */
  readonly instanceBytes: number;
}

export interface SizingPolicy {
  readonly budgetBytes: number;
  /** Seconds of arrivals that are kept ready. */
  readonly horizonSeconds: number;
  /** A function not launched for so long keeps its minimum only. */
  readonly idleAfterMs: number;
  readonly maxPerFunction: number;
}

export const DEFAULT_SIZING: Omit<SizingPolicy, 'budgetBytes'> = {
  horizonSeconds: 1,
  idleAfterMs: 10 * 60_000,
  maxPerFunction: 1024,
};

/** Target numbers by key. */
export function poolTargets(demands: readonly PoolDemand[], policy: SizingPolicy): Map<string, number> {
  const targets = new Map<string, number>();
  let left = policy.budgetBytes;
  const grant = ({ key, instanceBytes }: PoolDemand, wanted: number): void => {
    const have = targets.get(key) ?? 0;
    const more = Math.max(0, Math.min(wanted - have, Math.floor(left / Math.max(1, instanceBytes))));
    targets.set(key, have + more);
    left -= more * instanceBytes;
  };
  for (const demand of demands) grant(demand, Math.min(demand.min, policy.maxPerFunction));
  const active = demands.filter(({ idleMs }) => idleMs < policy.idleAfterMs);
  for (const demand of active) grant(demand, 1);
  for (const demand of [...active].sort((a, b) => b.rate - a.rate)) {
    grant(demand, Math.min(policy.maxPerFunction, Math.ceil(demand.rate * policy.horizonSeconds)));
  }
  return targets;
}

/** Launches a second, as an average that forgets with a time constant. */
export class ArrivalRate {
  readonly #timeConstantMs: number;
  #rate = 0;
  #atMs: number;

  constructor(nowMs: number, timeConstantMs = 10_000) {
    this.#atMs = nowMs;
    this.#timeConstantMs = timeConstantMs;
  }

  arrive(nowMs: number): void {
    this.#rate = this.at(nowMs) + 1000 / this.#timeConstantMs;
    this.#atMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#rate * Math.exp((this.#atMs - nowMs) / this.#timeConstantMs);
  }
}
