/** The members of one value that some part of the schema has accepted already: `unevaluatedProperties` and `unevaluatedItems` skip them. */
export class Evaluated {
  readonly #members = new Set<string | number>();
  readonly #enclosing: Evaluated | null;
  /** Number of sets that enclose this one. `has` may look into each. */
  readonly depth: number;

  constructor(enclosing: Evaluated | null = null) {
    this.#enclosing = enclosing;
    this.depth = enclosing === null ? 0 : enclosing.depth + 1;
  }

  has(member: string | number): boolean {
    return this.#members.has(member) || this.#enclosing?.has(member) === true;
  }

  add(member: string | number): void {
    this.#members.add(member);
  }

  /** Adds another set's own members, without those of the sets that enclose it. */
  merge(other: Evaluated): void {
    for (const member of other.#members) this.#members.add(member);
  }

  get size(): number {
    return this.#members.size;
  }
}
