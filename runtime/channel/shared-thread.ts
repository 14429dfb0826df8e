import { DeficitRoundRobin, QUANTUM_MS } from './deficit-round-robin.ts';

/** A debt below this is not worth a callback of the event loop. It is paid together with the debt of later work. */
const SMALL_DEBT_MS = QUANTUM_MS / 4;

/** A thread that serves several channels in turn. */
export class SharedThread {
  readonly #turns = new DeficitRoundRobin<ThreadShare>();
  #scheduled = false;

  /** Returns a channel's share. `goOn` is called when the waiting channel gets its turn. */
  share(goOn: () => void): ThreadShare {
    return new ThreadShare(this.#turns, goOn, () => this.#schedule());
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      const next = this.#turns.pass();
      if (!this.#turns.idle || next) this.#schedule();
      next?.goOn();
    });
  }
}

/** One channel's share of a {@link SharedThread}. */
export class ThreadShare {
  owedMs = 0;
  readonly goOn: () => void;
  readonly #turns: DeficitRoundRobin<ThreadShare>;
  readonly #requestTurn: () => void;
  #sinceMs = 0;

  constructor(turns: DeficitRoundRobin<ThreadShare>, goOn: () => void, requestTurn: () => void) {
    this.#turns = turns;
    this.goOn = goOn;
    this.#requestTurn = requestTurn;
  }

  /** True while the channel waits for its turn. */
  get waiting(): boolean {
    return this.#turns.waits(this);
  }

  /** Begins to work; returns false when the channel must wait first. */
  begin(): boolean {
    if (this.waiting) return false;
    this.#sinceMs = performance.now();
    return this.#turns.mayGoOn(this);
  }

  /** Counts the time since `begin` or the last `more`. Returns true when the channel may continue its work. */
  more(): boolean {
    const nowMs = performance.now();
    this.spend(nowMs - this.#sinceMs);
    this.#sinceMs = nowMs;
    return this.#turns.mayGoOn(this);
  }

  /** Counts time of the thread that the channel used. Work between `begin` and `more` is counted by `more`. */
  spend(ms: number): void {
    this.#turns.spend(this, ms);
    if (this.owedMs >= SMALL_DEBT_MS) this.#requestTurn();
  }

  wait(): void {
    this.#turns.wait(this);
    this.#requestTurn();
  }

  leave(): void {
    this.#turns.leave(this);
  }
}
