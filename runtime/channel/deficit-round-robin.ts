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
