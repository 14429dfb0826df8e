import type { PagesAhead } from '../batcher/pages-ahead.ts';
import { treeTenant } from '../memory/identity.ts';
import type { PageSpace } from '../memory/space.ts';
import type { PrefixPeek } from '../memory/space-prefix.ts';
import type { ModelContext } from './call.ts';
import { type ForwardPlan, type ForwardRequest, prefixRequest } from './plan.ts';

/**
 * Describes to the batcher a call that is not planned yet: the inputs that it has to compute, and the pages that it will give to others. Inputs
 * in the prefix cache are not counted, so that they take no room in a batch. Both stay the same from when a batch is chosen until the call is
 * planned; the plan may find a little more or less.
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
   * @param request undefined when the call is malformed or its inputs are not there yet
   */
  inputs(count: number, request: () => ForwardRequest | undefined): number {
    return count - (this.#look(count, request)?.cachedInputs ?? 0);
  }

  pagesAhead(
    count: number,
    adapter: string | undefined,
    request: () => ForwardRequest | undefined,
  ): PagesAhead | undefined {
    const peek = this.#look(count, request);
    if (!peek) return undefined;
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: peek.keys(), takes: peek.takes, begun: false };
  }

  /** As `pagesAhead`, for a call that was cut. `tokens` are all of its inputs. */
  pagesLeft(plan: ForwardPlan, tokens: Uint32Array, adapter: string | undefined): PagesAhead {
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: plan.keysAhead(tokens), takes: 0, begun: true };
  }

  #look(count: number, request: () => ForwardRequest | undefined): PrefixPeek | undefined {
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

  /** Tenants share no pages, and neither do adapters. */
  #scope(adapter: string | undefined): string {
    return treeTenant(this.#space.owner.tenant, adapter);
  }
}
