import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';

/** A resource that an inferlet holds in this process until the inferlet drops it or ends. */
export interface Droppable {
  drop(): void;
}

/** A wait that ends when it is dropped. */
export class DroppableWait implements Droppable {
  readonly #controller = new AbortController();

  /** Aborts when the wait is dropped. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  drop(): void {
    this.#controller.abort();
  }
}

/** Resources of one kind that an inferlet holds, up to a bound. */
export class Holdings {
  readonly #max: number;
  readonly #noun: string;
  readonly #resources = new Set<Droppable>();

  /** @param noun plural, for the error's text */
  constructor(max: number, noun: string) {
    this.#max = max;
    this.#noun = noun;
  }

  get size(): number {
    return this.#resources.size;
  }

  /** Keeps a resource. Returns an error when the bound is reached; the resource must then refuse every call. */
  take(resource: Droppable): HandlerError | null {
    if (this.#resources.size >= this.#max) {
      return handlerError(
        'limit-exceeded',
        `${this.#max} ${this.#noun} are held, the most at once; drop what is not needed`,
      );
    }
    this.#resources.add(resource);
    return null;
  }

  /** Stops counting a resource; harmless for a resource that was not kept. */
  give(resource: Droppable): void {
    this.#resources.delete(resource);
  }

  dropAll(): void {
    for (const resource of [...this.#resources]) resource.drop();
    this.#resources.clear();
  }
}
