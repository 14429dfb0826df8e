import type { PagesAhead } from '../batcher/pages-ahead.ts';
import { treeTenant } from '../memory/identity.ts';
import type { PageSpace } from '../memory/space.ts';
import type { PrefixPeek } from '../memory/space-prefix.ts';
import type { ModelContext } from './call.ts';
import { type ForwardPlan, type ForwardRequest, prefixRequest } from './plan.ts';

/**
 * Describes to the batcher a call that is not planned yet: the inputs that it has to compute, and the pages that it will give to others. Inputs
 * in the prefix cache are not counted, so that they take no room in a batch. The description stays the same within a round of the engine, in which
 * at most one batch is chosen; the plan that the call then makes may find a little more or less in the cache.
 */
export class Unplanned {
  readonly #space: PageSpace;
  readonly #model: ModelContext;
  #round = -1;
  #peek: PrefixPeek | undefined;

  constructor(space: PageSpace, model: ModelContext) {
    this.#space = space;
    this.#model = model;
  }

  /**
   * Inputs to compute.
   * @param count inputs of the call
   * @param request undefined when the call is malformed or its inputs are not there yet
   */
  inputs(count: number, request: () => ForwardRequest | undefined): number {
    return count - (this.#peekOnce(count, request)?.cachedInputs ?? 0);
  }

  /** Pages that the call will give to others. For the parameters see `inputs`. */
  pagesAhead(
    count: number,
    adapter: string | undefined,
    request: () => ForwardRequest | undefined,
  ): PagesAhead | undefined {
    const peek = this.#peekOnce(count, request);
    if (!peek) return undefined;
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: peek.keys(), takes: peek.takes, begun: false };
  }

  /** As `pagesAhead`, for a call that was cut. `tokens` are all of its inputs. */
  pagesLeft(plan: ForwardPlan, tokens: Uint32Array, adapter: string | undefined): PagesAhead {
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: plan.keysAhead(tokens), takes: 0, begun: true };
  }

  #peekOnce(count: number, request: () => ForwardRequest | undefined): PrefixPeek | undefined {
    // A call of at most one page cannot gain a whole page from the cache.
    if (count <= this.#space.pool.pageSize) return undefined;
    if (this.#round !== this.#model.round) {
      this.#round = this.#model.round;
      const forwardRequest = request();
      const cacheRequest = forwardRequest && prefixRequest(forwardRequest);
      this.#peek = cacheRequest && this.#space.peekPrefix(cacheRequest);
    }
    return this.#peek;
  }

  /** Calls share pages only within a tenant and an adapter. */
  #scope(adapter: string | undefined): string {
    return treeTenant(this.#space.owner.tenant, adapter);
  }
}
