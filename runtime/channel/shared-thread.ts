import { QUANTUM_MS, Turns } from './turns.ts';

/** Less than this is not worth a callback of the event loop: it is paid with what comes later. */
const SMALL_DEBT_MS = QUANTUM_MS / 4;

/** The thread of a process that serves several channels, in turn. */
export class SharedThread {
  readonly #turns = new Turns<ThreadShare>();
  #scheduled = false;

  /** A channel's share. `goOn` is called when it waits and its turn has come. */
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

/** What one channel has of a {@link SharedThread}. */
export class ThreadShare {
  owedMs = 0;
  readonly goOn: () => void;
  readonly #turns: Turns<ThreadShare>;
  readonly #spent: () => void;
  #sinceMs = 0;

  constructor(turns: Turns<ThreadShare>, goOn: () => void, spent: () => void) {
    this.#turns = turns;
    this.goOn = goOn;
    this.#spent = spent;
  }

  /** It waits for its turn. */
  get waiting(): boolean {
    return this.#turns.waits(this);
  }

  /** Begins to work, unless it has to wait first. */
  begin(): boolean {
    if (this.waiting) return false;
    this.#sinceMs = performance.now();
    return this.#turns.mayGoOn(this);
  }

  /** Whether it may go on with the work that it began. */
  more(): boolean {
    const nowMs = performance.now();
    this.spend(nowMs - this.#sinceMs);
    this.#sinceMs = nowMs;
    return this.#turns.mayGoOn(this);
  }

  /** Counts work that it did beside. */
  spend(ms: number): void {
    this.#turns.spend(this, ms);
    if (this.owedMs >= SMALL_DEBT_MS) this.#spent();
  }

  /** Waits until its turn comes. */
  wait(): void {
    this.#turns.wait(this);
    this.#spent();
  }

  leave(): void {
    this.#turns.leave(this);
  }
}
