/** The members of one value that some schema has accepted, for `unevaluatedProperties` and `unevaluatedItems`. */
export class Evaluated {
  readonly #members = new Set<string | number>();
  readonly #around: Evaluated | null;

  constructor(around: Evaluated | null = null) {
    this.#around = around;
  }

  has(member: string | number): boolean {
    return this.#members.has(member) || this.#around?.has(member) === true;
  }

  add(member: string | number): void {
    this.#members.add(member);
  }

  /** Adds the own members of another set; those around it are left out. */
  merge(other: Evaluated): void {
    for (const member of other.#members) this.#members.add(member);
  }

  get size(): number {
    return this.#members.size;
  }
}
