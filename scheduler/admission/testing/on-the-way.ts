/** An invocation that is admitted and has not begun. */
export interface OnItsWay {
  readonly id: string;
  readonly tenant: string;
  /** Admission number of the invocation, minus the number of earlier ones that it may overtake. Runtimes fetch the smallest place first. */
  readonly place: number;
  /** True when the invocation has latency targets, or its tenant held few slots. */
  readonly mayUseReserve: boolean;
  /** True when the invocation has latency targets. */
  readonly hasLatencyTargets: boolean;
}

/** The invocations that are on their way to runtimes. */
export class OnTheWay {
  #list: OnItsWay[] = [];

  /** Ids in the order in which runtimes fetch them. */
  get ids(): string[] {
    return this.#list.map(({ id }) => id);
  }

  /** Counts the invocations that may use the reserve (`reserveUsers`), and the others. */
  counts(): { readonly reserveUsers: number; readonly others: number } {
    const reserveUsers = this.#list.filter((one) => one.mayUseReserve).length;
    return { reserveUsers, others: this.#list.length - reserveUsers };
  }

  /** Inserts an invocation by its place. An invocation without latency targets also goes behind all others of its tenant. */
  send(invocation: OnItsWay): void {
    const predecessorIndex = this.#list.findLastIndex(
      ({ tenant, place }) =>
        (tenant === invocation.tenant && !invocation.hasLatencyTargets) || place < invocation.place,
    );
    this.#list.splice(predecessorIndex + 1, 0, invocation);
  }

  remove(id: string): void {
    this.#list = this.#list.filter((one) => one.id !== id);
  }
}
