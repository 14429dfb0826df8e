import type { Backend } from '../backends/backend.ts';

/** Reports refused graphs: they make steps slower, and no other sign shows it. */
export class RefusedGraphs {
  readonly #backend: Pick<Backend, 'graphs'>;
  #told = 0;

  constructor(backend: Pick<Backend, 'graphs'>) {
    this.#backend = backend;
  }

  /** Tells of the graphs that the driver has refused since the last check. */
  check(tell: (text: string) => void): void {
    const { refused = 0, why } = this.#backend.graphs?.() ?? {};
    if (refused > this.#told) tell(`the driver refused ${refused - this.#told} graphs, and steps are slower: ${why}`);
    this.#told = refused;
  }
}
