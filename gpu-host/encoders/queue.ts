/** Texts of one call that wait for the device. */
export interface Waiting {
  readonly tenant: string;
  /** Tokens of each text, in the order in which the texts are encoded. */
  readonly lengths: Uint32Array;
  /** Number of texts that batches have taken. */
  taken: number;
  /** Rank of the call's workflow among those of its tenant: the smaller, the earlier. Undefined for a call that is not of a workflow. */
  readonly query?: number | undefined;
}

/** A text of a batch. */
export interface PickedText<Call extends Waiting> {
  readonly call: Call;
  /** The text's place in `lengths`. */
  readonly index: number;
}

/** Tokens of padding that cost less than a further batch. */
const FREE_PADDING = 128;
/** Batches of work that may overtake one call of a workflow. At 25 ms a batch they take 1.6 s; the longest, of 100 ms, take 6.4 s. */
const MOST_OVERTAKING_BATCHES = 64;
/** Calls at the front of a tenant's queue that may exchange turns, at most. Bounds the time that the choice of a text takes. */
const MOST_EXCHANGING = 256;

/** One tenant's calls. */
interface TenantCalls<Call> {
  /** The waiting calls in the order in which they came, each with the tokens of all calls that came before it. */
  readonly waiting: Map<Call, number>;
  /** Tokens of all calls that came. */
  arrivedTokens: number;
  /** Tokens of the calls that were taken or removed. */
  departedTokens: number;
}

/**
 * Chooses which texts an encoder computes next. Tenants have equal parts of a batch by tokens, and unused parts go to the others. A tenant's calls go
 * in order of arrival. Calls of workflows that directly follow each other in this order exchange turns: the oldest workflow (Ayo's query: ASPLOS '25,
 * Algorithm 2) goes first, and every call outside the group has the same texts ahead of it as before. Pure: no clock, no I/O.
 */
export class EncodeQueue<Call extends Waiting> {
  /** Each tenant's calls. The first tenant begins the next batch. */
  readonly #tenants = new Map<string, TenantCalls<Call>>();

  /** Tenants with waiting texts. */
  get tenants(): Iterable<string> {
    return this.#tenants.keys();
  }

  get isEmpty(): boolean {
    return this.#tenants.size === 0;
  }

  add(call: Call): void {
    if (call.taken === call.lengths.length) return;
    const tenant = this.#tenants.get(call.tenant) ?? {
      waiting: new Map<Call, number>(),
      arrivedTokens: 0,
      departedTokens: 0,
    };
    this.#tenants.set(call.tenant, tenant);
    tenant.waiting.set(call, tenant.arrivedTokens);
    tenant.arrivedTokens += tokensLeft(call);
  }

  remove(call: Call): void {
    const tenant = this.#tenants.get(call.tenant);
    if (!tenant?.waiting.delete(call)) return;
    tenant.departedTokens += tokensLeft(call);
    if (tenant.waiting.size === 0) this.#tenants.delete(call.tenant);
  }

  /**
   * Takes the texts of the next batch: at least one, and more while their number times the longest is at most `maxTokens`, because a batch
   * is padded to its longest text. A text with which padding would be most of the batch waits, since the other texts would pay for the padding.
   */
  take(maxTokens: number): PickedText<Call>[] {
    const batch: PickedText<Call>[] = [];
    let [width, tokens] = [0, 0];
    /** The call of each tenant whose turn it is, until all its texts are taken. */
    const currentCalls = new Map<TenantCalls<Call>, Call>();
    const takeOne = (tenant: TenantCalls<Call>): number => {
      const currentCall = currentCalls.get(tenant);
      const call = currentCall && tenant.waiting.has(currentCall) ? currentCall : nextOf(tenant, maxTokens);
      if (!call) return 0;
      currentCalls.set(tenant, call);
      const length = call.lengths[call.taken] ?? 0;
      const newWidth = Math.max(width, length);
      const paddedTokens = (batch.length + 1) * newWidth;
      const padding = paddedTokens - tokens - length;
      if (batch.length > 0 && (paddedTokens > maxTokens || padding > Math.max(FREE_PADDING, paddedTokens / 2)))
        return 0;
      width = newWidth;
      tokens += length;
      batch.push({ call, index: call.taken });
      call.taken++;
      tenant.departedTokens += length;
      if (call.taken === call.lengths.length) tenant.waiting.delete(call);
      return length;
    };
    const tokenShare = maxTokens / Math.max(1, this.#tenants.size);
    for (const tenant of this.#tenants.values()) {
      let takenTokens = 0;
      do {
        const textTokens = takeOne(tenant);
        if (textTokens === 0) break;
        takenTokens += textTokens;
      } while (takenTokens < tokenShare);
    }
    // Each tenant has had its part. Now all of them fill the room that is left.
    for (const tenant of this.#tenants.values()) while (takeOne(tenant) > 0);
    const [firstEntry] = this.#tenants;
    for (const [name, { waiting }] of this.#tenants) if (waiting.size === 0) this.#tenants.delete(name);
    // The next batch begins with another tenant.
    if (firstEntry && this.#tenants.delete(firstEntry[0])) this.#tenants.set(...firstEntry);
    return batch;
  }
}

/**
 * The tenant's first call, or the call of the oldest workflow among the calls of workflows that directly follow it. All tokens before the first
 * call have departed, so further departed tokens overtook the first call, are its own, or were removed. Once these fill
 * {@link MOST_OVERTAKING_BATCHES} batches, the first call goes next: no more tokens overtake it.
 */
function nextOf<Call extends Waiting>(
  { waiting, departedTokens }: TenantCalls<Call>,
  maxTokens: number,
): Call | undefined {
  const [head] = waiting;
  if (!head) return undefined;
  const [firstCall, tokensBefore] = head;
  if (firstCall.query === undefined || departedTokens - tokensBefore >= MOST_OVERTAKING_BATCHES * maxTokens)
    return firstCall;
  let best = firstCall;
  let callCount = 0;
  for (const call of waiting.keys()) {
    if (call.query === undefined || ++callCount > MOST_EXCHANGING) break;
    if (call.query < (best.query ?? 0)) best = call;
  }
  return best;
}

/** Tokens of a call's texts that were not taken. */
function tokensLeft({ lengths, taken }: Waiting): number {
  let tokens = 0;
  for (let i = taken; i < lengths.length; i++) tokens += lengths[i] ?? 0;
  return tokens;
}
