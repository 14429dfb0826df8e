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

/** Who pays for a part of a step. */
export type Payer = Pick<Meter, 'charge'>;

/** The time of one device, all of which somebody pays: what was spent and what was charged are the same number of nanoseconds, always. */
export class DeviceTime {
  #spentNs = 0;
  /** Spent and not charged; by itself, since a sum of years is not exact to the nanosecond. */
  #unchargedNs = 0;

  /** For display: exact up to some hundred days. */
  get spentNs(): number {
    return this.#spentNs;
  }

  /**
   * Divides the duration of one step among its parts by their tokens, of which each has one at least: in whole nanoseconds that add up to it,
   * each within 1 of its part, since where the parts end on the way from 0 to the total is rounded, not the parts.
   */
  spend<T>(ms: number, parts: readonly T[], tokensOf: (part: T) => number, payerOf: (part: T) => Payer): void {
    const ns = this.#spent(ms);
    let sum = 0;
    for (const part of parts) sum += tokensOf(part);
    let [seen, end] = [0, 0];
    for (const part of parts) {
      const start = end;
      seen += tokensOf(part);
      end = seen === sum ? ns : Math.floor(ns * (seen / sum));
      this.#charge(payerOf(part), end - start);
    }
  }

  /** Charges the whole duration to one. */
  spendFor(ms: number, payer: Payer): void {
    this.#charge(payer, this.#spent(ms));
  }

  /** Tells, once, of time that was spent for nobody. Cheap: for whenever the model is idle. */
  check(tell: (text: string) => void): void {
    if (this.#unchargedNs === 0) return;
    tell(`${this.#unchargedNs} ns of the device were spent and charged to nobody`);
    this.#unchargedNs = 0;
  }

  #spent(ms: number): number {
    const ns = Math.max(0, Math.round(ms * 1e6));
    this.#spentNs += ns;
    this.#unchargedNs += ns;
    return ns;
  }

  #charge(payer: Payer, ns: number): void {
    this.#unchargedNs -= ns;
    payer.charge(ns);
  }
}
