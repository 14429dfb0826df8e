/** Texts of one call that wait for the device. */
export interface Waiting {
  readonly tenant: string;
  /** Tokens of each text, in the order in which the texts are encoded. */
  readonly lengths: Uint32Array;
  /** Number of texts that were taken. */
  taken: number;
  /** Place of the call's workflow among those of its tenant: the smaller, the earlier. Undefined for a call that is not of a workflow. */
  readonly query?: number | undefined;
}

/** A text of a batch. */
export interface PickedText<Call extends Waiting> {
  readonly call: Call;
  /** The text's place in `lengths`. */
  readonly index: number;
}

/** Padding of a batch, tokens, that is cheaper than another batch. */
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
  came: number;
  /** Tokens of the calls that were taken or removed. */
  gone: number;
}

/**
 * Chooses which texts an encoder computes next. Tenants have equal parts of a batch by tokens, and unused parts go to the others; a
 * tenant's texts go first come, first served. Calls of workflows that follow each other in that order exchange turns: the query that came first
 * goes first (Ayo, ASPLOS '25, Algorithm 2), and every other call finds the same texts ahead of it. Pure: no clock, no I/O.
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
    const tenant = this.#tenants.get(call.tenant) ?? { waiting: new Map<Call, number>(), came: 0, gone: 0 };
    this.#tenants.set(call.tenant, tenant);
    tenant.waiting.set(call, tenant.came);
    tenant.came += tokensLeft(call);
  }

  remove(call: Call): void {
    const tenant = this.#tenants.get(call.tenant);
    if (!tenant?.waiting.delete(call)) return;
    tenant.gone += tokensLeft(call);
    if (tenant.waiting.size === 0) this.#tenants.delete(call.tenant);
  }

  /**
   * Takes the texts of the next batch: at least one, and more while their number times the longest is at most `maxTokens`, because a batch
   * is padded to its longest text. A text that would make most of the batch padding waits: others would pay for it.
   */
  take(maxTokens: number): PickedText<Call>[] {
    const batch: PickedText<Call>[] = [];
    let [width, tokens] = [0, 0];
    /** The call of each tenant whose turn it is, until all its texts are taken. */
    const turns = new Map<TenantCalls<Call>, Call>();
    const takeOne = (tenant: TenantCalls<Call>): number => {
      const turn = turns.get(tenant);
      const call = turn && tenant.waiting.has(turn) ? turn : nextOf(tenant, maxTokens);
      if (!call) return 0;
      turns.set(tenant, call);
      const length = call.lengths[call.taken] ?? 0;
      const wider = Math.max(width, length);
      const padded = (batch.length + 1) * wider;
      const padding = padded - tokens - length;
      if (batch.length > 0 && (padded > maxTokens || padding > Math.max(FREE_PADDING, padded / 2))) return 0;
      width = wider;
      tokens += length;
      batch.push({ call, index: call.taken });
      call.taken++;
      tenant.gone += length;
      if (call.taken === call.lengths.length) tenant.waiting.delete(call);
      return length;
    };
    const share = maxTokens / Math.max(1, this.#tenants.size);
    for (const tenant of this.#tenants.values()) {
      let used = 0;
      for (let more = takeOne(tenant); more > 0; more = used < share ? takeOne(tenant) : 0) used += more;
    }
    for (const tenant of this.#tenants.values()) while (takeOne(tenant) > 0);
    const [first] = this.#tenants;
    for (const [name, { waiting }] of this.#tenants) if (waiting.size === 0) this.#tenants.delete(name);
    // The next batch begins with another tenant.
    if (first && this.#tenants.delete(first[0])) this.#tenants.set(...first);
    return batch;
  }
}

/**
 * The tenant's first call, or the call of the oldest workflow among the calls of workflows that directly follow it. All calls before the first
 * one are gone, so any other tokens that are gone overtook the first call, or were removed. Once these tokens fill
 * {@link MOST_OVERTAKING_BATCHES} batches, calls go first come, first served until the tokens are fewer: no call is overtaken by more.
 */
function nextOf<Call extends Waiting>({ waiting, gone }: TenantCalls<Call>, maxTokens: number): Call | undefined {
  const [head] = waiting;
  if (!head) return undefined;
  const [first, before] = head;
  if (first.query === undefined || gone - before >= MOST_OVERTAKING_BATCHES * maxTokens) return first;
  let best = first;
  let seen = 0;
  for (const call of waiting.keys()) {
    if (call.query === undefined || ++seen > MOST_EXCHANGING) break;
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
