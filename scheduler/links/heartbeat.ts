import { judgeLateness, type Lateness, type ProcessEnd, type ProcessLook } from '../policies/silence.ts';

/** Interval of the requests for a sign of life, milliseconds. */
const EVERY_MS = 500;
/** Silent intervals after which a peer counts as lost: about four seconds, longer than a garbage collection of 600 ms in the peer's process. */
const SILENT_INTERVALS = 7;

export interface HeartbeatTimes {
  /** `EVERY_MS` by default. */
  readonly everyMs?: number;
  /** `SILENT_INTERVALS` by default. */
  readonly silentIntervals?: number;
  /**
   * Asks what the supervisor of the peer's machine last saw of the peer's process. A silent peer whose process computes, is starved or is stopped is
   * not lost (`policies/silence.ts`). Without it, silence alone decides.
   */
  readonly look?: () => Promise<ProcessLook | ProcessEnd | undefined>;
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
  readonly #look: HeartbeatTimes['look'];
  #lateness: Lateness | undefined;
  #isJudging = false;
  #isStopped = false;

  /**
   * @param ask asks the peer for a sign of life; called at once, and again after each interval
   * @param onLost called once, when the peer has been silent for too long
   */
  constructor(ask: () => void, onLost: (why: string) => void, times: HeartbeatTimes = {}) {
    this.#ask = ask;
    this.#onLost = onLost;
    this.#everyMs = times.everyMs ?? EVERY_MS;
    this.#silentIntervals = times.silentIntervals ?? SILENT_INTERVALS;
    this.#look = times.look;
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
    this.#isStopped = true;
    clearInterval(this.#timer);
  }

  #tick(): void {
    this.#silentCount = this.#isHeard ? 0 : this.#silentCount + 1;
    if (this.#isHeard) this.#lateness = undefined;
    this.#isHeard = false;
    const silentMs = this.#silentCount * this.#everyMs;
    const isLate = silentMs >= Math.max(this.#allowedMs, this.#silentIntervals * this.#everyMs);
    if (isLate && !this.#look) {
      this.#lose(`it has been silent for ${silentMs} ms`);
      return;
    }
    this.#ask();
    if (isLate) void this.#judge(silentMs);
  }

  /** Decides whether a peer that has been silent for too long is lost. Time is counted in ticks here, too. */
  async #judge(silentMs: number): Promise<void> {
    if (this.#isJudging) return;
    this.#isJudging = true;
    // Without an answer of Redis, silence alone decides.
    const look = await this.#look?.().catch(() => undefined);
    this.#isJudging = false;
    if (this.#isStopped || this.#isHeard || this.#silentCount === 0) return;
    const limits = {
      allowedMs: this.#lateness?.sinceMs ?? silentMs,
      graceMs: this.#silentIntervals * this.#everyMs,
    };
    const { lateness, verdict } = judgeLateness(this.#lateness, silentMs, look, limits);
    this.#lateness = lateness;
    if (verdict.kind === 'lost') this.#lose(`it has been silent for ${silentMs} ms (${verdict.why})`);
  }

  #lose(why: string): void {
    this.stop();
    this.#onLost(why);
  }
}

/**
 * Calls back after `ms` milliseconds. When this process was stopped or starved past the deadline, it first reads the bytes that arrived meanwhile,
 * because the awaited answer may be among them.
 * @returns the function that cancels the call
 */
export function deadline(ms: number, callback: () => void): () => void {
  let afterRead: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    afterRead = setImmediate(callback);
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(afterRead);
  };
}
