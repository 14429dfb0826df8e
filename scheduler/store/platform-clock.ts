/** Two clocks whose difference is at most this count as equal: NTP keeps machines much closer. */
const AGREES_MS = 100;

/** Sources of time, in milliseconds; tests replace them. */
export interface ClockSources {
  /** Since the Unix epoch. It may step. */
  readonly wall: () => number;
  /** Since any moment. It never steps. */
  readonly steady: () => number;
}

/**
 * The platform's time: this process's estimate of the time of Redis, which all processes share. The process's own clock may step, or be wrong
 * from the beginning. Thanks to the estimate, other processes do not find this process's invocations overdue even then, and this process does not
 * end theirs too early. While the process's own clock agrees with the estimate, that clock gives the time, because it is finer.
 *
 * When only the clock of Redis steps, the process goes on with its own. When both step, as on a single machine, the platform's time steps.
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
    const wallTime = wall();
    if (this.#offset === undefined) return wallTime;
    const platformTime = steady() + this.#offset;
    return Math.abs(wallTime - platformTime) <= AGREES_MS ? wallTime : Math.floor(platformTime);
  };

  /** The steady time, to pass to `adjust` as `askedAt`. */
  steadyTime(): number {
    return this.#sources.steady();
  }

  /** Adjusts the estimate to the time that Redis answered, in ms. `askedAt` is the steady time at which this process asked for it. */
  adjust(redisMs: number, askedAt: number): void {
    const { wall, steady } = this.#sources;
    const now = steady();
    // Redis read its clock at some moment between the question and the answer. `redisMs` is rounded down by up to 1 ms.
    const [minOffset, maxOffset] = [redisMs - now, redisMs + 1 - askedAt];
    const wallOffset = wall() - now;
    const isPlausible = (offset: number): boolean => offset >= minOffset - AGREES_MS && offset <= maxOffset + AGREES_MS;
    const measuredOffset = (minOffset + maxOffset) / 2;
    if (isPlausible(wallOffset)) this.#offset = wallOffset;
    else if (this.#offset === undefined) this.#offset = measuredOffset;
    // If this process's own clock agrees with the estimate, only the clock of Redis has stepped, and the estimate stays.
    else if (!isPlausible(this.#offset) && Math.abs(wallOffset - this.#offset) > AGREES_MS)
      this.#offset = measuredOffset;
  }
}
