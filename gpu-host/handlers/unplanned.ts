import type { PageSpace } from '../memory/space.ts';
import type { ModelContext } from './call.ts';
import { type ForwardRequest, prefixRequest } from './plan.ts';

/**
 * Number of inputs that an unplanned call has to compute, without those in the prefix cache, so that these take no room in a batch. The
 * number stays the same from when a batch is chosen until the call is planned; the plan may find a little more or less.
 */
export class Unplanned {
  readonly #space: PageSpace;
  readonly #model: ModelContext;
  #round = -1;
  #inputs = 0;

  constructor(space: PageSpace, model: ModelContext) {
    this.#space = space;
    this.#model = model;
  }

  /** @param request undefined when the call is malformed or its inputs are not there yet */
  inputs(count: number, request: () => ForwardRequest | undefined): number {
    // A call of at most one page cannot gain a whole page from the cache.
    if (count <= this.#space.pool.pageSize) return count;
    if (this.#round !== this.#model.round) {
      this.#round = this.#model.round;
      this.#inputs = count - this.#taken(request());
    }
    return this.#inputs;
  }

  #taken(request: ForwardRequest | undefined): number {
    const asked = request && prefixRequest(request);
    return asked ? this.#space.peekPrefix(asked) : 0;
  }
}
