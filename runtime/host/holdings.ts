import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';

/** A resource that an inferlet holds in this process until the inferlet drops it or ends. */
export interface Droppable {
  drop(): void;
}

export class DroppableWait implements Droppable {
  readonly #dropped = new AbortController();

  /** Aborts when the wait is dropped. */
  get signal(): AbortSignal {
    return this.#dropped.signal;
  }

  drop(): void {
    this.#dropped.abort();
  }
}

/** Resources of one kind that an inferlet holds, up to a bound. */
export class Holdings {
  readonly #most: number;
  readonly #what: string;
  readonly #held = new Set<Droppable>();

  /** @param what plural, for the error's text */
  constructor(most: number, what: string) {
    this.#most = most;
    this.#what = what;
  }

  get size(): number {
    return this.#held.size;
  }

  /** Keeps a resource. Returns an error when there is no place for it; the resource must then refuse every call. */
  take(resource: Droppable): HandlerError | null {
    if (this.#held.size >= this.#most) {
      return handlerError(
        'limit-exceeded',
        `${this.#most} ${this.#what} are held, the most at once; drop what is not needed`,
      );
    }
    this.#held.add(resource);
    return null;
  }

  /** Frees a resource's place; harmless when the resource had none. */
  give(resource: Droppable): void {
    this.#held.delete(resource);
  }

  dropAll(): void {
    for (const resource of [...this.#held]) resource.drop();
    this.#held.clear();
  }
}
