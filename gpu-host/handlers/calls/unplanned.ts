import type { PagesAhead } from '../../batcher/call.ts';
import { treeTenant } from '../../memory/pool.ts';
import type { PageSpace } from '../../memory/space.ts';
import type { PrefixPeek } from '../../memory/space-prefix.ts';
import type { RemainingCall } from '../steps/step-bounds.ts';
import type { ModelContext } from './call.ts';
import { type ForwardPlan, type ForwardRequest, prefixRequest } from './plan.ts';

/**
 * Describes a call to the batcher before the call has a plan: the number of inputs that the call must compute, and the pages that it will compute and
 * other calls may then take. Inputs in the prefix cache do not count, so that they take no room in a batch. The description stays the same during a
 * round of the engine, which chooses at most one batch. The call makes its plan later, and may then find a little more or less in the cache.
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
   * Number of inputs that the call must compute.
   * @param count number of all inputs of the call
   * @param request returns undefined when the call is malformed, or when its inputs do not exist yet
   */
  inputs(count: number, request: () => ForwardRequest | undefined): number {
    return count - (this.#peekOnce(count, request)?.cachedInputs ?? 0);
  }

  /**
   * The sizes of the inputs to compute. The in-pages bound the context, whose slots are counted when the call makes its plan.
   * @param inputs as `inputs` returned
   */
  remaining(inputs: number, inPages: number, outputs: number): RemainingCall {
    return { inputs, context: inPages * this.#space.pool.pageSize, outputs };
  }

  /** Pages that the call will compute and that other calls may then take; undefined when they are not known. See `inputs` for the parameters. */
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

  /** Like `pagesAhead`, for a call that has a plan: earlier batches computed a part of the call. @param tokens all inputs of the call */
  pagesLeft(plan: ForwardPlan, tokens: Uint32Array, adapter: string | undefined): PagesAhead {
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: plan.keysAhead(tokens), takes: 0, begun: true };
  }

  /** Looks up the call in the prefix cache, once in each round. */
  #peekOnce(count: number, request: () => ForwardRequest | undefined): PrefixPeek | undefined {
    // A call of at most one page of inputs is not looked up: its last input is always computed, so the cache could spare it
    // less than one page.
    if (count <= this.#space.pool.pageSize) return undefined;
    if (this.#round !== this.#model.round) {
      this.#round = this.#model.round;
      const forwardRequest = request();
      const cacheRequest = forwardRequest && prefixRequest(forwardRequest);
      this.#peek = cacheRequest && this.#space.peekPrefix(cacheRequest);
    }
    return this.#peek;
  }

  /** Name of the scope in which calls share pages: the same tenant and the same adapter. */
  #scope(adapter: string | undefined): string {
    return treeTenant(this.#space.owner.tenant, adapter);
  }
}
