import type { BatchCall } from './call.ts';
import { type BatchLimits, mostShortTokens } from './select.ts';

/** The ready calls: those that the next batch may take, and those that it leaves out because they wait for pages. */
interface Candidates {
  /** In the order in which the next batch considers them. */
  readonly going: BatchCall[];
  /** These stay ready: one of `going` computes what they need. */
  readonly waiting: readonly BatchCall[];
  /** The waiting calls, by the call that computes their first page. */
  readonly awaitedBy: ReadonlyMap<BatchCall, readonly BatchCall[]>;
}

/**
 * Leaves a long call out of the next batch when the calls considered before it compute at least half of the inputs that it could compute in that
 * batch itself. The long call takes their pages once these exist. (SGLang's scheduler puts requests with a common new prefix last for this reason.)
 *
 * A call waits only for a call that is considered before it for the same batch. So two calls never wait for each other, no call waits for one that
 * cannot go, and each batch that a call misses brings the pages that it needs nearer. When the other call fails or is dropped, the most
 * urgent of the calls that waited computes the missing pages. When a call waits for a less urgent call that was cut by an earlier batch, the cut
 * call goes in its place.
 *
 * @param ready all ready forwards, in order of urgency
 * @param variant the variant of the next batch
 */
export function postponeWaiters(ready: BatchCall[], variant: string | undefined, limits: BatchLimits): Candidates {
  const maxShortTokens = mostShortTokens(limits);
  const isLong = (call: BatchCall): boolean => call.variant === variant && call.tokens > maxShortTokens;
  const longs = ready.filter(isLong);
  if (longs.length < 2) return { going: ready, waiting: [], awaitedBy: NOT_AWAITED };
  const claims = new PageClaims();
  for (const call of longs) if (call.pagesAhead?.begun) claims.add(call);
  const going: BatchCall[] = [];
  const waiting: BatchCall[] = [];
  const awaitedBy = new Map<BatchCall, BatchCall[]>();
  const chosen = new Set<BatchCall>();
  let tokens = 0;
  const choose = (call: BatchCall): void => {
    going.push(call);
    chosen.add(call);
    tokens += call.tokens;
    claims.add(call);
  };
  for (const call of ready) {
    if (chosen.has(call)) continue;
    // The calls before this one fill the batch: it will not go in any case.
    if (tokens >= limits.maxTokens || !isLong(call)) {
      going.push(call);
      continue;
    }
    const ahead = claims.worthAwaiting(call, limits.maxTokens);
    if (!ahead) {
      choose(call);
      continue;
    }
    waiting.push(call);
    const others = awaitedBy.get(ahead);
    if (others) others.push(call);
    else awaitedBy.set(ahead, [call]);
    if (!chosen.has(ahead)) choose(ahead);
  }
  return { going, waiting, awaitedBy };
}

export const NOT_AWAITED: ReadonlyMap<BatchCall, readonly BatchCall[]> = new Map();

/** The pages that the chosen calls compute next, and the pages that calls cut by earlier batches compute next. */
class PageClaims {
  readonly #scopes = new Map<string, Map<number, BatchCall>>();

  /** Claims the call's pages, except those that another call has claimed before. */
  add(call: BatchCall): void {
    const { pagesAhead } = call;
    if (!pagesAhead) return;
    const { scope, keys } = pagesAhead;
    const claimed = this.#scopes.get(scope) ?? new Map<number, BatchCall>();
    this.#scopes.set(scope, claimed);
    for (const key of keys) if (!claimed.has(key)) claimed.set(key, call);
  }

  /**
   * Returns the call that computes the first page of `call`, or undefined when other calls compute less than half of the next `maxTokens` inputs of
   * `call`. Inputs far past the keys of `call` do not count.
   */
  worthAwaiting(call: BatchCall, maxTokens: number): BatchCall | undefined {
    const { pagesAhead } = call;
    const claimed = pagesAhead && this.#scopes.get(pagesAhead.scope);
    if (!claimed) return undefined;
    const { keys, takes, pageTokens } = pagesAhead;
    let sharedPages = 0;
    while (sharedPages < takes && sharedPages < keys.length && claimed.has(keys[sharedPages] as number)) sharedPages++;
    // A long text has keys for its first pages only. Inputs more than a page past these pages do not count: no key tells if others compute them.
    const countedInputs = Math.min(call.tokens, maxTokens, (keys.length + 1) * pageTokens);
    if (sharedPages * pageTokens * 2 < countedInputs) return undefined;
    return claimed.get(keys[0] as number);
  }
}
