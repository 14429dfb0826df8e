/** Usage of one inferlet on this host, summed over all models and encoders: device time, held pages over time, and encoded tokens. */
export class Meter {
  readonly #changed: () => void;
  readonly #now: () => number;
  #deviceNs = 0;
  #pages = 0;
  #pageMs = 0;
  #encodedTokens = 0;
  /** Clock time up to which `#pageMs` covers the held pages. */
  #sinceMs: number;

  /**
   * @param changed called on each change
   * @param now milliseconds of a monotonic clock
   */
  constructor(changed: () => void, now: () => number = () => performance.now()) {
    this.#changed = changed;
    this.#now = now;
    this.#sinceMs = now();
  }

  /** Nanoseconds of device time, a whole number. */
  get deviceNs(): number {
    return this.#deviceNs;
  }

  /** Pages held now, each once per model, even when other inferlets hold them too. */
  get pages(): number {
    return this.#pages;
  }

  /** The integral of held pages over time, in page-milliseconds, up to now. */
  get pageMs(): number {
    this.#integrate();
    return this.#pageMs;
  }

  /** Tokens that encoders computed. */
  get encodedTokens(): number {
    return this.#encodedTokens;
  }

  /** Counts tokens of a batch that an encoder has computed. */
  encoded(tokens: number): void {
    this.#encodedTokens += tokens;
    this.#changed();
  }

  /** Counts device time, in whole nanoseconds. */
  charge(ns: number): void {
    this.#deviceNs += ns;
    this.#changed();
  }

  /** Changes the number of distinct pages held. */
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

/** The inferlet that pays for a part of a step. */
export type Payer = Pick<Meter, 'charge'>;

/** The time of one device. Each method that spends time charges all of it to payers: time spent and time charged stay equal. */
export class DeviceTime {
  #spentNs = 0;
  /** Time spent that no payer was charged for. A counter of its own stays exact; the difference of two sums over years would not. */
  #unchargedNs = 0;

  /** For display: exact up to about a hundred days, or 2^53 ns. */
  get spentNs(): number {
    return this.#spentNs;
  }

  /**
   * Divides the duration of one step among its parts in proportion to their tokens; each part has at least one token. The shares are whole
   * nanoseconds, add up to the duration, and each is within 1 ns of its exact value: the code rounds the running totals, not the shares.
   * @param ms duration of the step
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

  /** Divides `ms` evenly among the payers. */
  spendEvenly(ms: number, payers: readonly Payer[]): void {
    this.spend(ms, payers, one, itself);
  }

  /** Charges all of `ms` to one payer. */
  spendFor(ms: number, payer: Payer): void {
    this.#charge(payer, this.#spent(ms));
  }

  /** Reports time that was charged to no payer, once: such time shows a bug of the host. Cheap enough to run whenever the model is idle. */
  check(tell: (text: string) => void): void {
    if (this.#unchargedNs === 0) return;
    tell(`${this.#unchargedNs} ns of device time were charged to no inferlet`);
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

const one = (): number => 1;
const itself = (payer: Payer): Payer => payer;

/** Time constant of the average: the weight of freed pages falls to a third in this time. */
const DECAY_MS = 10_000;
/** Minimum of `retryAfterMs`: a client that tries again sooner would meet the same pressure. */
const SHORTEST_MS = 1000;
/** Maximum of `retryAfterMs`: a client that would have to wait longer should decide for itself when to try again. */
const LONGEST_MS = 60_000;

/**
 * Recent rate at which pages of one model came free, as an exponentially decaying average. Counts pages that inferlets gave back or left
 * behind, except pages of inferlets that the host ended to make room. Pure: callers pass the time.
 */
export class PageTurnover {
  /** Pages, weighted by how long ago they came free. */
  #recentPages = 0;
  #atMs = 0;

  freed(pages: number, nowMs: number): void {
    this.#recentPages = this.#recentAt(nowMs) + pages;
    this.#atMs = nowMs;
  }

  /** Expected time until `pages` have come free, in whole milliseconds: 1 to 60 s, and 60 s when no pages came free recently. */
  retryAfterMs(pages: number, nowMs: number): number {
    const pagesPerMs = this.#recentAt(nowMs) / DECAY_MS;
    const expectedMs = pagesPerMs > 0 ? pages / pagesPerMs : LONGEST_MS;
    return Math.round(Math.min(LONGEST_MS, Math.max(SHORTEST_MS, expectedMs)));
  }

  #recentAt(nowMs: number): number {
    return this.#recentPages * Math.exp(-(nowMs - this.#atMs) / DECAY_MS);
  }
}
