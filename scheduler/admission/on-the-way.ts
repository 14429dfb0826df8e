/** Admitted and not begun. */
export interface OnItsWay {
  readonly id: string;
  readonly tenant: string;
  /** Its number among all that were admitted, less what it goes ahead of. */
  readonly place: number;
  /** Its tenant held few slots. */
  readonly few: boolean;
}

/** The invocations that are on their way to runtimes. */
export class OnTheWay {
  #list: OnItsWay[] = [];

  /** Ids in the order in which runtimes fetch them. */
  get ids(): string[] {
    return this.#list.map(({ id }) => id);
  }

  /** How many of tenants that held few slots, and of others. */
  counts(): { readonly few: number; readonly others: number } {
    const few = this.#list.filter((one) => one.few).length;
    return { few, others: this.#list.length - few };
  }

  /** Inserts one by its place, behind all of its own tenant. */
  send(one: OnItsWay): void {
    const before = this.#list.findLastIndex(({ tenant, place }) => tenant === one.tenant || place < one.place);
    this.#list.splice(before + 1, 0, one);
  }

  remove(id: string): void {
    this.#list = this.#list.filter((one) => one.id !== id);
  }
}
