/** The members of one value that some part of the schema has accepted already: `unevaluatedProperties` and `unevaluatedItems` skip them. */
export class Evaluated {
  readonly #members = new Set<string | number>();

  has(member: string | number): boolean {
    return this.#members.has(member);
  }

  add(member: string | number): void {
    this.#members.add(member);
  }

  merge(other: Evaluated): void {
    for (const member of other.#members) this.#members.add(member);
  }

  get size(): number {
    return this.#members.size;
  }
}
