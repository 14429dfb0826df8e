import type { Backend } from '../../backends/backend.ts';

/** Reports step graphs that the device's driver refused: their steps are slower, and nothing else shows it. */
export class RefusedGraphs {
  readonly #backend: Pick<Backend, 'graphs'>;
  #reportedCount = 0;

  constructor(backend: Pick<Backend, 'graphs'>) {
    this.#backend = backend;
  }

  /** Tells of the graphs that the driver has refused since the last check. */
  check(report: (text: string) => void): void {
    const { refused = 0, why } = this.#backend.graphs?.() ?? {};
    if (refused > this.#reportedCount)
      report(`the driver refused ${refused - this.#reportedCount} graphs, and steps are slower: ${why}`);
    this.#reportedCount = refused;
  }
}
