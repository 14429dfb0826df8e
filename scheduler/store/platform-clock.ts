/** Two clocks that differ by no more count as one: NTP keeps machines much closer. */
const AGREES_MS = 100;

/** Sources of time, in milliseconds; tests replace them. */
export interface ClockSources {
  /** Since the Unix epoch. It may step. */
  readonly wall: () => number;
  /** Since any moment. It never steps. */
  readonly steady: () => number;
}

/**
 * The time of the platform: that of Redis, which all processes share, as far as the process knows it. A process whose own clock steps, or is wrong
 * from the beginning, therefore neither makes invocations that are overdue for the others nor ends theirs. While the own clock agrees with
 * the platform's time, it is the finer one.
 *
 * When the time of Redis alone steps, the process goes on with its own clock. When both step, which is so on one machine, the time steps.
 */
export class PlatformClock {
  readonly #sources: ClockSources;
  /** Platform time less steady time; undefined before Redis has answered. */
  #offset: number | undefined;

  constructor(sources: ClockSources = { wall: Date.now, steady: () => performance.now() }) {
    this.#sources = sources;
  }

  /** Milliseconds since the Unix epoch. */
  readonly now = (): number => {
    const { wall, steady } = this.#sources;
    const own = wall();
    if (this.#offset === undefined) return own;
    const known = steady() + this.#offset;
    return Math.abs(own - known) <= AGREES_MS ? own : Math.floor(known);
  };

  /** The steady time, for `heard`. */
  asks(): number {
    return this.#sources.steady();
  }

  /** Takes an answer of Redis, its time in ms, to a question that was asked at `askedAt`. */
  heard(redisMs: number, askedAt: number): void {
    const { wall, steady } = this.#sources;
    const now = steady();
    // Redis read its clock at any moment in between.
    const [least, most] = [redisMs - now, redisMs + 1 - askedAt];
    const own = wall() - now;
    const agrees = (offset: number): boolean => offset >= least - AGREES_MS && offset <= most + AGREES_MS;
    if (agrees(own)) this.#offset = own;
    else if (this.#offset === undefined) this.#offset = (least + most) / 2;
    else if (!agrees(this.#offset) && Math.abs(own - this.#offset) > AGREES_MS) this.#offset = (least + most) / 2;
  }
}
