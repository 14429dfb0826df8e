/** Milliseconds of the thread that one member gets per turn of the event loop. */
export const QUANTUM_MS = 1;

/** A participant of `DeficitRoundRobin`. */
export interface Member {
  /** Milliseconds that the member used and that no turn has paid yet. */
  owedMs: number;
}

/**
 * Shares a thread between members by a kind of deficit round robin (Shreedhar and Varghese, SIGCOMM '95). The cost of work is known only
 * afterwards, so a member works first and then owes the cost. Members that owe less than a quantum may work at any time; others queue.
 * Each turn of the event loop pays a quantum to the first of the queue, and to each member outside the queue that owes something.
 */
export class DeficitRoundRobin<M extends Member> {
  readonly #queue = new Set<M>();
  readonly #owing = new Set<M>();

  /** True when no member owes or waits: turns change nothing. */
  get idle(): boolean {
    return this.#queue.size === 0 && this.#owing.size === 0;
  }

  /** True while the member waits in the queue. */
  waits(member: M): boolean {
    return this.#queue.has(member);
  }

  /** True when the member may continue in this turn. */
  mayGoOn(member: M): boolean {
    return member.owedMs < QUANTUM_MS;
  }

  spend(member: M, ms: number): void {
    member.owedMs += ms;
    this.#owing.add(member);
  }

  /** Puts a member that has used up its turn at the end of the queue. */
  wait(member: M): void {
    this.#queue.add(member);
  }

  leave(member: M): void {
    this.#queue.delete(member);
    this.#owing.delete(member);
  }

  /** Called after each turn of the event loop. Returns the member of the queue that continues now. */
  pass(): M | undefined {
    for (const member of this.#owing) if (!this.#queue.has(member)) this.#pay(member);
    const [first] = this.#queue;
    if (!first) return undefined;
    this.#queue.delete(first);
    this.#pay(first);
    if (this.mayGoOn(first)) return first;
    this.#queue.add(first);
    return undefined;
  }

  #pay(member: M): void {
    member.owedMs = Math.max(0, member.owedMs - QUANTUM_MS);
    if (member.owedMs === 0) this.#owing.delete(member);
  }
}

/** A debt below this is not worth a callback of the event loop. It is paid together with the debt of later work. */
const SMALL_DEBT_MS = QUANTUM_MS / 4;

/** A thread that serves several channels in turn. */
export class SharedThread {
  readonly #turns = new DeficitRoundRobin<ChannelShare>();
  #scheduled = false;

  /** Returns a channel's share. `goOn` is called when the waiting channel gets its turn. */
  share(goOn: () => void): ChannelShare {
    return new ChannelShare(this.#turns, goOn, () => this.#schedule());
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
export class ChannelShare {
  owedMs = 0;
  readonly goOn: () => void;
  readonly #turns: DeficitRoundRobin<ChannelShare>;
  readonly #requestTurn: () => void;
  #sinceMs = 0;

  constructor(turns: DeficitRoundRobin<ChannelShare>, goOn: () => void, requestTurn: () => void) {
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
