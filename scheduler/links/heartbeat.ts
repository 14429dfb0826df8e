/** Interval of the requests for a sign of life, milliseconds. */
const EVERY_MS = 500;
/** Silent intervals after which a peer counts as lost: about four seconds, longer than a garbage collection of 600 ms in the peer's process. */
const SILENT_INTERVALS = 7;

export interface HeartbeatTimes {
  /** `EVERY_MS` by default. */
  readonly everyMs?: number;
  /** `SILENT_INTERVALS` by default. */
  readonly silentIntervals?: number;
}

/**
 * Detects a dead peer whose connection was not closed: a cut cable closes nothing, and the kernel repeats unanswered data for a quarter of an hour.
 * Bytes of any kind are signs of life. Silence is counted in ticks of this process's own timer, so that a pause of this process counts as one tick;
 * bytes that arrived during the pause are read before the next tick.
 */
export class Heartbeat {
  readonly #ask: () => void;
  readonly #onLost: (why: string) => void;
  readonly #everyMs: number;
  readonly #silentIntervals: number;
  readonly #timer: NodeJS.Timeout;
  #isHeard = true;
  #silentCount = 0;
  #allowedMs = 0;

  /**
   * @param ask asks the peer for a sign of life; called at once, and again after each interval
   * @param onLost called once, when the peer has been silent for too long
   */
  constructor(ask: () => void, onLost: (why: string) => void, times: HeartbeatTimes = {}) {
    this.#ask = ask;
    this.#onLost = onLost;
    this.#everyMs = times.everyMs ?? EVERY_MS;
    this.#silentIntervals = times.silentIntervals ?? SILENT_INTERVALS;
    this.#timer = setInterval(() => this.#tick(), this.#everyMs).unref();
    ask();
  }

  /** Call for each chunk of bytes from the peer. */
  heard(): void {
    this.#isHeard = true;
  }

  /**
   * Sets the length of the silence that the peer has announced because it computes. A value below the usual limit, such as 0, restores that limit.
   */
  allow(silentMs: number): void {
    this.#allowedMs = silentMs;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    this.#silentCount = this.#isHeard ? 0 : this.#silentCount + 1;
    this.#isHeard = false;
    const silentMs = this.#silentCount * this.#everyMs;
    if (silentMs < Math.max(this.#allowedMs, this.#silentIntervals * this.#everyMs)) {
      this.#ask();
      return;
    }
    this.stop();
    this.#onLost(`it has been silent for ${silentMs} ms`);
  }
}
