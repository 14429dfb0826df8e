/** What one inferlet has used on this host, on all its models: a part of the device's time, and pages for as long as it held them. */
export class Meter {
  readonly #changed: () => void;
  readonly #now: () => number;
  #deviceNs = 0;
  #pages = 0;
  #pageMs = 0;
  /** When `pageMs` was last brought up to date. */
  #sinceMs: number;

  /**
   * @param changed told of each change
   * @param now milliseconds of a clock that only goes on
   */
  constructor(changed: () => void, now: () => number = () => performance.now()) {
    this.#changed = changed;
    this.#now = now;
    this.#sinceMs = now();
  }

  /** Nanoseconds of the device, a whole number. */
  get deviceNs(): number {
    return this.#deviceNs;
  }

  /** Pages that it holds now: each once a model, whoever else holds them too. */
  get pages(): number {
    return this.#pages;
  }

  /** The integral of its pages over time, page-milliseconds, up to now. */
  get pageMs(): number {
    this.#integrate();
    return this.#pageMs;
  }

  charge(ns: number): void {
    this.#deviceNs += ns;
    this.#changed();
  }

  /** It holds so many distinct pages more, or fewer. */
  hold(change: number): void {
    this.#integrate();
    this.#pages += change;
    this.#changed();
  }

  #integrate(): void {
    const nowMs = this.#now();
    this.#pageMs += this.#pages * (nowMs - this.#sinceMs);
    this.#sinceMs = nowMs;
  }
}

/** Somebody for whom the device worked. */
export interface Payer {
  readonly meter: Pick<Meter, 'charge'>;
  /** Its part of the work, in tokens; more than 0. */
  readonly tokens: number;
}

/** The time of one device, all of which somebody pays: what was spent and what was charged are the same number of nanoseconds, always. */
export class DeviceTime {
  #spentNs = 0;
  #chargedNs = 0;

  get spentNs(): number {
    return this.#spentNs;
  }

  /** Divides the duration of one step among the calls in it, by their tokens. */
  spend(ms: number, payers: readonly Payer[]): void {
    const ns = Math.max(0, Math.round(ms * 1e6));
    const shares = divide(
      ns,
      payers.map(({ tokens }) => tokens),
    );
    this.#spentNs += ns;
    for (const [i, { meter }] of payers.entries()) {
      const share = shares[i] as number;
      this.#chargedNs += share;
      meter.charge(share);
    }
  }

  /** Throws when time was spent for nobody. Cheap: for whenever the model is idle. */
  check(): void {
    if (this.#spentNs !== this.#chargedNs)
      throw new Error(`${this.#spentNs} ns of the device were spent and ${this.#chargedNs} charged`);
  }
}

/**
 * Divides a whole number by weights into whole numbers that add up to it, each within 1 of its part: where the parts end on the way from 0
 * to the total is rounded, not the parts.
 */
export function divide(total: number, weights: readonly number[]): number[] {
  let sum = 0;
  for (const weight of weights) sum += weight;
  let [seen, end] = [0, 0];
  return weights.map((weight) => {
    const start = end;
    seen += weight;
    end = seen === sum ? total : Math.floor(total * (seen / sum));
    return end - start;
  });
}
