interface Node<T> {
  readonly value: T;
  next: Node<T> | null;
}

/** A queue whose `shift` takes constant time; `Array.shift` moves all other elements. */
export class Fifo<T> {
  #first: Node<T> | null = null;
  #last: Node<T> | null = null;

  get first(): T | undefined {
    return this.#first?.value;
  }

  push(value: T): void {
    const node: Node<T> = { value, next: null };
    if (this.#last) this.#last.next = node;
    else this.#first = node;
    this.#last = node;
  }

  shift(): T | undefined {
    const node = this.#first;
    this.#first = node?.next ?? null;
    if (!this.#first) this.#last = null;
    return node?.value;
  }

  clear(): void {
    this.#first = null;
    this.#last = null;
  }
}
