/** Milliseconds of the thread that one member gets in a turn of the event loop. */
export const QUANTUM_MS = 1;

/** What one member of `Turns` owes. */
export interface Member {
  /** Milliseconds that it took and that no turn has paid for yet. */
  owedMs: number;
}

/**
 * Shares a thread between members, by a kind of deficit round robin (Shreedhar and Varghese, SIGCOMM '95): what a piece of work costs is known
 * when it is done, so a member owes it afterwards. One that owes less than a quantum goes on whenever it has something to do; another one stands
 * in line. Each turn of the event loop pays a quantum to the first of the line, and to each member that owes something and is not in line.
 */
export class Turns<M extends Member> {
  readonly #line = new Set<M>();
  readonly #owing = new Set<M>();

  /** Nobody owes or waits: turns change nothing. */
  get idle(): boolean {
    return this.#line.size === 0 && this.#owing.size === 0;
  }

  /** It stands in line. */
  waits(member: M): boolean {
    return this.#line.has(member);
  }

  /** Whether it may go on in this turn. */
  mayGoOn(member: M): boolean {
    return member.owedMs < QUANTUM_MS;
  }

  spend(member: M, ms: number): void {
    member.owedMs += ms;
    this.#owing.add(member);
  }

  /** It has more to do than it may: it goes to the end of the line. */
  wait(member: M): void {
    this.#line.add(member);
  }

  leave(member: M): void {
    this.#line.delete(member);
    this.#owing.delete(member);
  }

  /** A turn of the event loop has passed. Answers the member of the line that goes on now. */
  pass(): M | undefined {
    for (const member of this.#owing) if (!this.#line.has(member)) this.#pay(member);
    const [first] = this.#line;
    if (!first) return undefined;
    this.#line.delete(first);
    this.#pay(first);
    if (this.mayGoOn(first)) return first;
    this.#line.add(first);
    return undefined;
  }

  #pay(member: M): void {
    member.owedMs = Math.max(0, member.owedMs - QUANTUM_MS);
    if (member.owedMs === 0) this.#owing.delete(member);
  }
}
