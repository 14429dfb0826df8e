/** What a runtime may run at once. */
export interface Capacity {
  /** Invocations. */
  readonly slots: number;
  /** KV pages, by model. A model that is not listed is not counted. */
  readonly pages: Readonly<Record<string, number>>;
  /** More than 1 admits more pages than there are, on the chance that not all are used at once; 1 by default. */
  readonly overcommit?: number;
}

/** What one invocation asks for. */
export interface Demand {
  readonly id: string;
  /** Place in the line of all invocations. */
  readonly arrival: number;
  /** KV pages that it is expected to hold, by model. */
  readonly pages: Readonly<Record<string, number>>;
}

/**
 * Decides who starts: first come, first served, when a slot is free and the expected pages of all that run fit. Nobody overtakes, so
 * the head of the line cannot starve. When nothing runs the head starts whatever it asks for, so that one larger than the machine is
 * refused by the GPU host with its reason and does not wait for ever. Pure: it holds no job and knows no clock.
 */
export class CapacityPolicy {
  #capacity: Capacity;
  readonly #running = new Map<string, Demand>();
  /** Held demands by arrival, earliest first. */
  readonly #line: Demand[] = [];

  constructor(capacity: Capacity) {
    this.#capacity = checked(capacity);
  }

  get running(): number {
    return this.#running.size;
  }

  /** Demands that wait for capacity. */
  get held(): readonly Demand[] {
    return this.#line;
  }

  /** How many more demands could start now if they asked for no pages; 0 while somebody waits. */
  get room(): number {
    return this.#line.length > 0 ? 0 : Math.max(0, this.#capacity.slots - this.#running.size);
  }

  /** Changes the capacity; what runs stays. */
  resize(capacity: Capacity): void {
    this.#capacity = checked(capacity);
  }

  /** Puts a demand in line, at its place by arrival. */
  offer(demand: Demand): void {
    let at = this.#line.length;
    while (at > 0 && precedes(demand, this.#line[at - 1])) at -= 1;
    this.#line.splice(at, 0, demand);
  }

  /** The head of the line, if it may start now; it counts as running from then on. */
  next(): Demand | null {
    const head = this.#line[0];
    if (head === undefined || !this.#fits(head)) return null;
    this.#line.shift();
    this.#running.set(head.id, head);
    return head;
  }

  /** Takes a demand out of the line; false when it is not there. */
  withdraw(id: string): boolean {
    const at = this.#line.findIndex((demand) => demand.id === id);
    if (at < 0) return false;
    this.#line.splice(at, 1);
    return true;
  }

  /** A running demand is over; what it held is free. */
  release(id: string): void {
    this.#running.delete(id);
  }

  /** Expected pages of all that run. */
  used(model: string): number {
    let pages = 0;
    for (const demand of this.#running.values()) pages += demand.pages[model] ?? 0;
    return pages;
  }

  #fits(demand: Demand): boolean {
    if (this.#running.size >= this.#capacity.slots) return false;
    if (this.#running.size === 0) return true;
    const overcommit = this.#capacity.overcommit ?? 1;
    return Object.entries(demand.pages).every(([model, pages]) => {
      const total = this.#capacity.pages[model];
      return total === undefined || this.used(model) + pages <= total * overcommit;
    });
  }
}

function precedes(demand: Demand, other: Demand | undefined): boolean {
  return other !== undefined && demand.arrival < other.arrival;
}

function checked(capacity: Capacity): Capacity {
  if (!Number.isInteger(capacity.slots) || capacity.slots < 1)
    throw new RangeError('A capacity needs at least one slot.');
  if ((capacity.overcommit ?? 1) < 1) throw new RangeError('Overcommit is 1 or more.');
  return capacity;
}
