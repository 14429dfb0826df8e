/** Milliseconds of the thread that one member gets per turn of the event loop. */
export const QUANTUM_MS = 1;

/** A participant of `Turns`. */
export interface Member {
  /** Milliseconds that the member used and that no turn has paid yet. */
  owedMs: number;
}

/**
 * Shares a thread between members by a kind of deficit round robin (Shreedhar and Varghese, SIGCOMM '95). The cost of work is known only
 * afterwards, so a member owes it then. A member that owes less than a quantum may work at any time; other members wait in line.
 * Each turn of the event loop pays a quantum to the first of the line, and to each member outside the line that owes something.
 */
export class Turns<M extends Member> {
  readonly #line = new Set<M>();
  readonly #owing = new Set<M>();

  /** True when no member owes or waits: turns change nothing. */
  get idle(): boolean {
    return this.#line.size === 0 && this.#owing.size === 0;
  }

  /** True while the member waits in line. */
  waits(member: M): boolean {
    return this.#line.has(member);
  }

  /** True when the member may continue in this turn. */
  mayGoOn(member: M): boolean {
    return member.owedMs < QUANTUM_MS;
  }

  spend(member: M, ms: number): void {
    member.owedMs += ms;
    this.#owing.add(member);
  }

  /** Puts a member that has used up its turn at the end of the line. */
  wait(member: M): void {
    this.#line.add(member);
  }

  leave(member: M): void {
    this.#line.delete(member);
    this.#owing.delete(member);
  }

  /** Called after each turn of the event loop. Returns the member of the line that continues now. */
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
