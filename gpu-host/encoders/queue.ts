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

/** Padding of a batch, tokens, that is cheaper than a batch more. */
const FREE_PADDING = 128;
/** Calls that may overtake one call of a workflow while it is its tenant's first, which bounds its wait. */
const MOST_OVERTAKING = 64;
/** Calls of workflows that exchange turns; later ones wait for theirs, which bounds the cost of a batch. */
const MOST_EXCHANGING = 256;

/**
 * Chooses which texts an encoder computes next. Tenants have equal parts of a batch by tokens, and what they leave goes to the others; a
 * tenant's texts go first come, first served. Calls of workflows that follow each other in that order exchange turns: the query that came first
 * goes first (Ayo, ASPLOS '25, Algorithm 2), and every other call finds the same texts ahead of it. Pure: no clock, no I/O.
 */
export class EncodeQueue<Call extends Waiting> {
  /** Each tenant's calls. The first tenant begins the next batch. */
  readonly #tenants = new Map<string, Set<Call>>();
  /** Calls that overtook a tenant's first one. */
  readonly #overtaking = new WeakMap<Call, Set<Call>>();

  /** Tenants with waiting texts. */
  get tenants(): Iterable<string> {
    return this.#tenants.keys();
  }

  get isEmpty(): boolean {
    return this.#tenants.size === 0;
  }

  add(call: Call): void {
    if (call.taken === call.lengths.length) return;
    const calls = this.#tenants.get(call.tenant);
    if (calls) calls.add(call);
    else this.#tenants.set(call.tenant, new Set([call]));
  }

  remove(call: Call): void {
    const calls = this.#tenants.get(call.tenant);
    if (calls?.delete(call) && calls.size === 0) this.#tenants.delete(call.tenant);
  }

  /**
   * Takes the texts of the next batch: at least one, and of more so many that their number times the longest is at most `maxTokens`, because
   * a batch is padded to its longest text. A text that would make most of the batch padding waits: others would pay for it.
   */
  take(maxTokens: number): PickedText<Call>[] {
    const batch: PickedText<Call>[] = [];
    let [width, tokens] = [0, 0];
    /** The call of each tenant whose turn it is, until all its texts are taken. */
    const turns = new Map<Set<Call>, Call>();
    const takeOne = (calls: Set<Call>): number => {
      const turn = turns.get(calls);
      const call = turn && calls.has(turn) ? turn : this.#next(calls);
      if (!call) return 0;
      turns.set(calls, call);
      const length = call.lengths[call.taken] ?? 0;
      const wider = Math.max(width, length);
      const padded = (batch.length + 1) * wider;
      const padding = padded - tokens - length;
      if (batch.length > 0 && (padded > maxTokens || padding > Math.max(FREE_PADDING, padded / 2))) return 0;
      width = wider;
      tokens += length;
      batch.push({ call, index: call.taken });
      call.taken++;
      if (call.taken === call.lengths.length) calls.delete(call);
      return length;
    };
    const share = maxTokens / Math.max(1, this.#tenants.size);
    for (const calls of this.#tenants.values()) {
      let used = 0;
      for (let more = takeOne(calls); more > 0; more = used < share ? takeOne(calls) : 0) used += more;
    }
    for (const calls of this.#tenants.values()) while (takeOne(calls) > 0);
    const [first] = this.#tenants;
    for (const [tenant, calls] of this.#tenants) if (calls.size === 0) this.#tenants.delete(tenant);
    // The next batch begins with another tenant.
    if (first && this.#tenants.delete(first[0])) this.#tenants.set(...first);
    return batch;
  }

  /** The tenant's first call, or that of an older workflow which follows it with nothing but calls of workflows between them. */
  #next(calls: Set<Call>): Call | undefined {
    const [first] = calls;
    if (first?.query === undefined) return first;
    const overtaking = this.#overtaking.get(first);
    let best = first;
    let seen = 0;
    for (const call of calls) {
      if (call.query === undefined || ++seen > MOST_EXCHANGING) break;
      const mayGo = (overtaking?.size ?? 0) < MOST_OVERTAKING || overtaking?.has(call);
      if (mayGo && call.query < (best.query ?? 0)) best = call;
    }
    if (best === first) return first;
    if (overtaking) overtaking.add(best);
    else this.#overtaking.set(first, new Set([best]));
    return best;
  }
}
