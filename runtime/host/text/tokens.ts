import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { RunCredit } from '#gpu-host/protocol/run.ts';
import { RUN_WINDOW_TOKENS } from '#gpu-host/protocol/wire.ts';
import { SPARE_TOKENS, type TokenAsk } from '#scheduler/quotas/grants.ts';
import type { SharedLimits } from '../services/services.ts';

export interface TokensOptions {
  /** Maximum tokens of the invocation. */
  readonly limit: number;
  /** The limits of the inferlet's family. */
  readonly shared: () => Pick<SharedLimits, 'count' | 'refuseTokens'> | null;
  /**
   * Called with `true` when the inferlet's calls must wait for a higher ceiling, with `false` when they may go on, and with an error when the
   * waiting ones must fail.
   */
  readonly hold: (held: boolean | HandlerError) => void;
  /** Called when the inferlet needs or wants a higher ceiling. The store's answer to `ask` comes with `grant`. */
  readonly askForTokens: () => void;
}

/** Tokens of a call. */
export interface CallTokens {
  readonly inputs: number;
  readonly outputs: number;
  /** Inputs that a cache may have; the answer tells whether they are charged. */
  readonly cacheable: number;
}

/** Each token of a run is counted twice: as an output, and as the input of the next step. */
export const COUNTS_PER_TOKEN = 2;
/** An inferlet that has charged nothing for this long gives back the tokens that it was granted in advance. */
const IDLE_MS = 500;
/** Errors of the calls of an inferlet that ends. Its host reports the tokens of the last batch once the inferlet has ended. */
const ENDING: ReadonlySet<HandlerError['tag']> = new Set(['terminated', 'cancelled']);

/** A call whose tokens wait for a higher ceiling. */
interface HeldTokens {
  readonly tokens: number;
  /** Tokens that the call would like to have besides. */
  readonly wanted: number;
  /** Counts the tokens: the call is sent. */
  readonly enter: () => void;
}

/**
 * Counts the tokens of one inferlet, in three ways:
 * - Usage (`input`, `output`, `cached`): inputs count when a call is sent, outputs and cacheable inputs when it is answered.
 * - Limits of the invocation and of its family: all tokens of a call count from its start, so that concurrent calls
 *   count together. The call that exceeds a limit still runs; later calls are refused.
 * - Quota (`charged`): all tokens of a call count before it is sent, and those that a cache had come back with the answer. The store grants the
 *   inferlet a ceiling; `charged` never exceeds it. A call without room waits, with all later calls of the inferlet, until the store has
 *   answered `ask` with a higher ceiling. A run on the device counts the tokens that the device may decode before it hears from the inferlet.
 *
 * Inputs of encoders count as used when a GPU host reports them as computed. While their call is under way, limits and quota count all of them.
 */
export class Tokens {
  readonly #options: TokensOptions;
  #input = 0;
  #output = 0;
  #cached = 0;
  /** Outputs of calls without an answer yet. */
  #expectedOutputs = 0;
  /** Cacheable inputs of calls without an answer yet. */
  #unsettledInputs = 0;
  /** Inputs that counted when they were embedded, and that no `forward` has computed yet. */
  #embeddedInputs = 0;
  /** Tokens that devices may still decode in runs. */
  #runTokens = 0;
  readonly #encoders = new EncoderTokens();
  /** Maximum of `charged`; null for no bound. */
  #ceiling: number | null = null;
  #heldCalls: HeldTokens[] = [];
  #heldTokens = 0;
  /** Tokens that held calls would like to have above `#heldTokens`. */
  #wantedTokens = 0;
  /** Runs whose device may not decode further tokens. */
  readonly #waitingRuns = new Set<RunTokens>();
  #quotaRefusal: HandlerError | null = null;
  #lastChargeMs = performance.now();
  /** True once hosts may report tokens that no call reserves: all that is granted then stays with the inferlet until it has ended. */
  #isEnding = false;

  constructor(options: TokensOptions) {
    this.#options = options;
  }

  get input(): number {
    return this.#input + this.#encoders.computed;
  }

  get output(): number {
    return this.#output;
  }

  /** Inputs that a prefix cache had: the model did not compute them again. */
  get cached(): number {
    return this.#cached;
  }

  /** Tokens that quotas count: those used, and those of calls under way. */
  get charged(): number {
    const underWay = this.#unsettledInputs + this.#expectedOutputs + this.#runTokens + this.#encoders.reserved;
    return this.input - this.#cached + this.#output + underWay;
  }

  /** True when a token quota bounds the inferlet. */
  get isBounded(): boolean {
    return this.#ceiling !== null;
  }

  /** True while calls wait for a higher ceiling. */
  get isHeld(): boolean {
    return this.#heldCalls.length > 0;
  }

  /** True when calls, or a run that has decoded all that it may, wait for a higher ceiling. */
  get isShort(): boolean {
    return this.isHeld || this.#hasStalledRun;
  }

  /** True when the inferlet wants a higher ceiling now. */
  get wantsTokens(): boolean {
    return this.isHeld || this.#waitingRuns.size > 0;
  }

  /** True when the inferlet has charged nothing for a while, and could give back granted tokens. */
  get hasSurplus(): boolean {
    return this.#ceiling !== null && !this.wantsTokens && this.#isIdle && this.#ceiling > this.charged;
  }

  /** The tokens to ask the store for. Until the answer, the inferlet charges no more than what it keeps. */
  ask(): TokenAsk {
    const { charged } = this;
    const isIdle = this.#isIdle;
    const keep = this.isHeld || isIdle ? charged : Math.max(charged, this.#ceiling ?? 0);
    if (this.#ceiling !== null) this.#ceiling = Math.min(this.#ceiling, keep);
    const needed = charged + this.#heldTokens + (this.#hasStalledRun ? COUNTS_PER_TOKEN : 0);
    const need = Math.max(keep, needed);
    if (isIdle && !this.wantsTokens) return { keep, need, want: need };
    let wanted = needed + this.#wantedTokens + SPARE_TOKENS;
    for (const run of this.#waitingRuns) wanted += run.wantedTokens;
    return { keep, need, want: Math.max(need, wanted) };
  }

  /** Sets the ceiling that the store has granted; null for none. */
  grant(ceiling: number | null): void {
    this.#ceiling = ceiling;
    if (this.isHeld && (ceiling === null || this.charged + this.#heldTokens <= ceiling)) this.#release();
    if (this.isHeld) return;
    for (const run of this.#waitingRuns) run.extend();
  }

  /** Fails the calls and runs that wait for a higher ceiling, and refuses later calls: no quota has room for them. */
  refuseQuota(error: HandlerError): void {
    this.#quotaRefusal = error;
    this.#heldCalls = [];
    this.#heldTokens = 0;
    this.#wantedTokens = 0;
    this.#options.hold(error);
    for (const run of this.#waitingRuns) run.refuse(error);
    this.#waitingRuns.clear();
  }

  /** Counts input and output tokens at once, or when the call that follows is sent. */
  count(input: number, output: number): void {
    this.#enter(input + output, () => {
      this.#input += input;
      this.#output += output;
      this.#options.shared()?.count(input + output);
    });
  }

  /** Counts embedded inputs; the first `forward` over them does not count them again. */
  embed(inputs: number): void {
    this.#embeddedInputs += inputs;
    this.count(inputs, 0);
  }

  /**
   * Counts the inputs of a `forward`, less those that `embed` has counted and that no earlier `forward` has computed. When the inferlet may not
   * request them, returns the error and counts nothing.
   */
  forward(inputs: number): HandlerError | null {
    const newInputs = Math.max(0, inputs - this.#embeddedInputs);
    const refused = newInputs > 0 ? this.refuse() : null;
    if (refused) return refused;
    this.#embeddedInputs -= inputs - newInputs;
    if (newInputs > 0) this.count(newInputs, 0);
    return null;
  }

  /**
   * Makes a call, and counts its tokens: provisionally until its answer and then for good. A failed call has no outputs. Returns the promise of
   * `call`; the counts are final before the caller's handlers run.
   *
   * @param call makes the call; the inferlet's devices hold it back while it has no room
   * @param cachedOf the number of inputs that a cache had, from a successful answer
   */
  during<T>(
    { inputs, outputs, cacheable }: CallTokens,
    call: () => Promise<Outcome<T>>,
    cachedOf?: (answer: T) => number,
  ): Promise<Outcome<T>> {
    let hasEntered = false;
    const held = this.#enter(inputs + outputs, () => {
      hasEntered = true;
      this.#input += inputs - cacheable;
      this.#unsettledInputs += cacheable;
      this.#expectedOutputs += outputs;
      this.#options.shared()?.count(inputs + outputs);
    });
    const result = call();
    if (held || outputs > 0 || cacheable > 0) {
      void result.then((outcome) => {
        if (!hasEntered) return this.#withdraw(held);
        this.#expectedOutputs -= outputs;
        if (outcome.tag === 'ok') this.#output += outputs;
        else this.#options.shared()?.count(-outputs);
        this.#unsettledInputs -= cacheable;
        this.#input += cacheable;
        if (outcome.tag === 'ok') this.#cached += Math.min(cachedOf?.(outcome.val) ?? 0, cacheable);
      });
    }
    return result;
  }

  /**
   * Makes an encoder's call, and counts all its inputs against limits and quota while it is under way. Returns the promise of `call`, which resolves
   * after the host has reported all that it has computed for the call.
   */
  encoding<T>(inputs: number, call: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    let hasEntered = false;
    const held = this.#enter(inputs, () => {
      hasEntered = true;
      this.#changeEncoders((encoders) => encoders.begin(inputs));
    });
    const result = call();
    void result.then((outcome) => {
      if (!hasEntered) return this.#withdraw(held);
      this.#isEnding ||= outcome.tag === 'err' && ENDING.has(outcome.val.tag);
      this.#changeEncoders((encoders) => encoders.end(inputs));
    });
    return result;
  }

  /** Counts inputs that a GPU host has computed for calls of its encoders. */
  encoded(inputs: number): void {
    this.#changeEncoders((encoders) => encoders.compute(inputs));
  }

  /** Opens a run of at most `maxTokens` tokens. The caller must `end` it. */
  openRun(maxTokens: number): RunTokens {
    return new RunTokens(maxTokens, {
      /** Holds the run back unless there is room for its first tokens and for `wanted` more. */
      enter: (tokens, wanted, enter) => {
        const held = this.#enter(tokens, enter, wanted);
        return () => this.#withdraw(held);
      },
      take: (tokens) => this.#takeForRun(tokens),
      giveBack: (tokens) => {
        this.#runTokens -= tokens;
      },
      count: (tokens, takenBefore) => {
        this.#lastChargeMs = performance.now();
        this.#runTokens -= COUNTS_PER_TOKEN * takenBefore;
        this.#input += tokens;
        this.#output += tokens;
        this.#options.shared()?.count(COUNTS_PER_TOKEN * tokens);
      },
      wait: (run) => {
        this.#waitingRuns.add(run);
        this.#options.askForTokens();
      },
      endWait: (run) => void this.#waitingRuns.delete(run),
      stalled: () => this.#options.askForTokens(),
    });
  }

  /** The error when the inferlet may not request tokens, or null. */
  refuse(): HandlerError | null {
    const { limit, shared } = this.#options;
    const underWay = this.#encoders.reserved + this.#unsettledInputs + this.#expectedOutputs + this.#heldTokens;
    if (this.input + this.#output + underWay > limit) {
      return handlerError('limit-exceeded', `the invocation's ${limit} tokens are used up (manifest: limits.tokens)`);
    }
    return shared()?.refuseTokens() ?? this.#quotaRefusal;
  }

  get #isIdle(): boolean {
    return !this.#isEnding && performance.now() - this.#lastChargeMs >= IDLE_MS;
  }

  get #hasStalledRun(): boolean {
    for (const run of this.#waitingRuns) if (run.isStalled) return true;
    return false;
  }

  /**
   * Counts a call's tokens: at once when there is room, else when the ceiling allows them. Until then the inferlet's devices hold all its calls.
   *
   * @param wanted tokens that the call would like to have besides; without room for them, too, it asks once
   * @returns the call that waits, or null
   */
  #enter(tokens: number, enter: () => void, wanted = 0): HeldTokens | null {
    this.#lastChargeMs = performance.now();
    const hasRoom = this.#ceiling === null || this.charged + tokens + wanted <= this.#ceiling;
    if (tokens === 0 || this.#quotaRefusal || (!this.isHeld && hasRoom)) {
      enter();
      return null;
    }
    if (!this.isHeld) this.#options.hold(true);
    const held = { tokens, wanted, enter };
    this.#heldCalls.push(held);
    this.#heldTokens += tokens;
    this.#wantedTokens += wanted;
    this.#options.askForTokens();
    return held;
  }

  /** Forgets a call that failed while it was held: it is not sent, so it costs nothing. The others may then fit. */
  #withdraw(held: HeldTokens | null): void {
    const index = held ? this.#heldCalls.indexOf(held) : -1;
    if (!held || index < 0) return;
    this.#heldCalls.splice(index, 1);
    this.#heldTokens -= held.tokens;
    this.#wantedTokens -= held.wanted;
    if (this.#ceiling === null || !this.isHeld || this.charged + this.#heldTokens <= this.#ceiling) this.#release();
  }

  #release(): void {
    // The tokens of the calls behind one stay out of reach of that one's run.
    for (const { tokens, enter } of this.#heldCalls) {
      this.#heldTokens -= tokens;
      enter();
    }
    this.#heldCalls = [];
    this.#wantedTokens = 0;
    this.#options.hold(false);
  }

  /** Takes up to this many tokens for a run, in whole steps. Returns how many. */
  #takeForRun(tokens: number): number {
    const room = this.#ceiling === null ? tokens : Math.max(0, this.#ceiling - this.charged - this.#heldTokens);
    const taken = Math.min(tokens, Math.floor(room / COUNTS_PER_TOKEN) * COUNTS_PER_TOKEN);
    this.#runTokens += taken;
    return taken;
  }

  #changeEncoders(change: (encoders: EncoderTokens) => void): void {
    const countBefore = this.#encoders.computed + this.#encoders.reserved;
    change(this.#encoders);
    this.#options.shared()?.count(this.#encoders.computed + this.#encoders.reserved - countBefore);
  }
}

/** The counts of the inferlet that a run changes. */
interface RunCounts {
  /** Returns a function that withdraws the run if it still waits for room. */
  enter(tokens: number, wanted: number, enter: () => void): () => void;
  take(tokens: number): number;
  giveBack(tokens: number): void;
  /** @param takenBefore number of these tokens that `take` has taken */
  count(tokens: number, takenBefore: number): void;
  wait(run: RunTokens): void;
  endWait(run: RunTokens): void;
  stalled(): void;
}

/** The tokens of one run on a device, which decodes up to `RUN_WINDOW_TOKENS` tokens beyond those that the inferlet has consumed. */
export class RunTokens implements RunCredit {
  /** Maximum tokens of the device's call. */
  #maxTokens: number;
  readonly #counts: RunCounts;
  /** Tokens that the device may decode in all. The inferlet's charge covers them. */
  #bound = 0;
  #countedTokens = 0;
  /** The consumed tokens that the device does not know of yet, and the call that tells it. */
  #unreported: { readonly tokens: number; readonly report: (tokens: number) => void } | null = null;
  #refused: HandlerError | null = null;
  #isOver = false;
  #isEntered = false;
  readonly #withdraw: () => void;
  /** Called when the quota has no room for another token of the run. */
  onRefused: (error: HandlerError) => void = () => undefined;

  constructor(maxTokens: number, counts: RunCounts) {
    this.#maxTokens = maxTokens;
    this.#counts = counts;
    const firstBound = Math.min(maxTokens, RUN_WINDOW_TOKENS);
    this.#withdraw = counts.enter(COUNTS_PER_TOKEN, COUNTS_PER_TOKEN * (firstBound - 1), () => {
      this.#isEntered = true;
      this.#bound = counts.take(COUNTS_PER_TOKEN * firstBound) / COUNTS_PER_TOKEN;
      if (this.#bound < firstBound) this.#maxTokens = this.#bound;
    });
  }

  /**
   * Maximum tokens for the device's call: fewer than those of the run when the quota has no room for the first window. Known once the call is sent;
   * 0 for a run that ended before, whose call must not be sent.
   */
  get deviceTokens(): number {
    return this.#isOver && !this.#isEntered ? 0 : this.#maxTokens;
  }

  /** Tokens that the quota counts for further tokens up to the window. */
  get wantedTokens(): number {
    return COUNTS_PER_TOKEN * (this.#boundAt(this.#unreported?.tokens ?? 0) - this.#bound);
  }

  /** True when the inferlet has every token that the device may decode, and the run has not ended. */
  get isStalled(): boolean {
    return this.#unreported !== null && this.#countedTokens >= this.#bound;
  }

  /** Counts tokens that the inferlet has taken from the run, or that it will not take. */
  count(tokens: number): void {
    this.#counts.count(tokens, Math.min(tokens, this.#bound - this.#countedTokens));
    this.#countedTokens += tokens;
    this.#bound = Math.max(this.#bound, this.#countedTokens);
    if (this.isStalled) this.#counts.stalled();
  }

  consumed(tokens: number, report: (tokens: number) => void): void {
    if (this.#isOver) return;
    this.#unreported = { tokens, report };
    this.extend();
    if (this.#unreported && !this.#refused) this.#counts.wait(this);
  }

  /** Lets the device decode as many further tokens as there is room for. */
  extend(): void {
    const unreported = this.#unreported;
    if (!unreported) return;
    const target = this.#boundAt(unreported.tokens);
    const taken = this.#counts.take(COUNTS_PER_TOKEN * (target - this.#bound)) / COUNTS_PER_TOKEN;
    this.#bound += taken;
    if (this.#bound >= target) {
      this.#unreported = null;
      this.#counts.endWait(this);
      unreported.report(unreported.tokens);
    } else if (taken > 0) unreported.report(this.#bound - RUN_WINDOW_TOKENS);
  }

  refuse(error: HandlerError): void {
    this.#refused = error;
    this.onRefused(error);
  }

  /** Gives back the tokens that the device has not decoded: the run has ended. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#unreported = null;
    this.#counts.endWait(this);
    this.#counts.giveBack(COUNTS_PER_TOKEN * (this.#bound - this.#countedTokens));
    this.#bound = this.#countedTokens;
    this.#withdraw();
  }

  #boundAt(consumed: number): number {
    return Math.min(this.#maxTokens, consumed + RUN_WINDOW_TOKENS);
  }
}

/**
 * Tokens of one inferlet's calls of encoders: the tokens that GPU hosts have computed, and the tokens that calls under way may still take. A
 * host reports one sum for the computed tokens of all calls, so the share of a call that ended early stays unknown while other calls are under
 * way. Until they end, `reserved` may be too high. The sum of `computed` and `reserved` still never exceeds the tokens of all calls.
 */
export class EncoderTokens {
  #asked = 0;
  #underWay = 0;
  #computed = 0;

  /** Tokens that were computed: as reported by the hosts, but never more than the tokens of all calls. */
  get computed(): number {
    return this.#computed;
  }

  /** Maximum tokens that the calls under way may still take. */
  get reserved(): number {
    return Math.min(this.#underWay, this.#asked - this.#computed);
  }

  /** Begins a call for `tokens` tokens. */
  begin(tokens: number): void {
    this.#asked += tokens;
    this.#underWay += tokens;
  }

  /** Ends a call, whose computed tokens the host has reported. */
  end(tokens: number): void {
    this.#underWay -= tokens;
  }

  /** Counts tokens that a host reports as computed. */
  compute(tokens: number): void {
    this.#computed = Math.min(this.#asked, this.#computed + tokens);
  }
}
