/** Admitted and not begun. */
export interface OnItsWay {
  readonly id: string;
  readonly tenant: string;
  /** Since when, milliseconds. */
  readonly at: number;
  /** Its number among all that were admitted, less what it goes ahead of. */
  readonly place: number;
  /** Its tenant held few slots. */
  readonly few: boolean;
  /** Which lane it is in. */
  readonly express: boolean;
}

/** Those on their way to runtimes, by two lanes: the ordinary one, and the express lane of tenants' first few. */
export class Lanes {
  /** Of each lane in the order in which its runtimes fetch. */
  #list: OnItsWay[] = [];

  /** In the order in which they are fetched. */
  ids(express: boolean): string[] {
    return this.#list.filter((one) => one.express === express).map(({ id }) => id);
  }

  /** How many are on their way: in the ordinary lane of tenants that held few slots and of others, and in the express lane. */
  counts(): { readonly few: number; readonly others: number; readonly express: number } {
    const express = this.#list.filter((one) => one.express).length;
    const few = this.#list.filter((one) => one.few && !one.express).length;
    return { few, others: this.#list.length - few - express, express };
  }

  /** Whether some of a tenant's are in the ordinary lane. */
  hasOrdinary(tenant: string): boolean {
    return this.#list.some((one) => one.tenant === tenant && !one.express);
  }

  /** Puts one into its lane by its place, and behind all of its own tenant. */
  send(one: OnItsWay): void {
    const { tenant, place, express } = one;
    const before = this.#list.findLastIndex(
      (other) => other.express === express && (other.tenant === tenant || other.place < place),
    );
    this.#list.splice(before + 1, 0, one);
  }

  remove(id: string): void {
    this.#list = this.#list.filter((one) => one.id !== id);
  }

  /** Those that have stood in the express lane since `before` or longer go to the head of the other. Answers their ids. */
  leaveExpress(before: number): string[] {
    const leaves = ({ express, at }: OnItsWay): boolean => express && at <= before;
    const stranded = this.#list.filter(leaves).map((one) => ({ ...one, express: false }));
    this.#list = [...stranded, ...this.#list.filter((one) => !leaves(one))];
    return stranded.map(({ id }) => id);
  }
}
