import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { EncoderTokens } from './encoder-tokens.ts';
import type { SharedLimits } from './invocation-services.ts';

export interface TokensOptions {
  /** Maximum tokens of the invocation. */
  readonly limit: number;
  /** The limits of the inferlet's family. */
  readonly shared: () => Pick<SharedLimits, 'count' | 'refuseTokens'> | null;
  /** Called when the quota has no room for requested or used tokens: the invocation must end. */
  readonly quotaReached: () => void;
  /** Called when a window of the quota has ended: only the store knows how many tokens are left now. */
  readonly quotaUnknown: () => void;
  /** The platform's clock, milliseconds since the Unix epoch; `Date.now` by default. */
  readonly now?: () => number;
}

/** Counts from which a quota's charge follows: all inputs less those that a cache had, plus outputs. */
export interface CountedTokens {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
}

/** The rest of a quota. */
export interface TokenAllowance {
  /** Tokens left; null for no bound. */
  readonly left: number | null;
  /** End of the quota's window, milliseconds since the Unix epoch, after which an unknown number is left; null for never. */
  readonly until: number | null;
}

/** Tokens of a call. */
export interface CallTokens {
  readonly inputs: number;
  readonly outputs: number;
  /** Inputs that a cache may have; the answer tells whether they are charged. */
  readonly cacheable: number;
}

/**
 * Counts the tokens of one inferlet, in three ways:
 * - Usage (`input`, `output`, `cached`): inputs count when a call is made, outputs and cacheable inputs when it is answered.
 * - Limits of the invocation and of its family: all tokens of a call count from its start, so that concurrent calls
 *   count together. The call that exceeds a limit still runs; later calls are refused.
 * - Quota: as the limits, but cacheable inputs count with the answer. If no cache had them, they may exceed the quota; then the invocation ends.
 *
 * Inputs of encoders count as used when a GPU host reports them as computed. While their call is under way, limits and quota count all of them.
 */
export class Tokens {
  readonly #options: TokensOptions;
  readonly #now: () => number;
  #input = 0;
  #output = 0;
  #cached = 0;
  /** Outputs of calls without an answer yet. */
  #expectedOutputs = 0;
  /** Cacheable inputs of calls without an answer yet. */
  #unsettledInputs = 0;
  /** Inputs that counted when they were embedded, and that no `forward` has computed yet. */
  #embeddedInputs = 0;
  readonly #encoders = new EncoderTokens();
  /** Maximum of `#charged`, since the inferlet's start; null for no bound. */
  #quota: number | null = null;
  #quotaEndsAt: number | null = null;

  constructor(options: TokensOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
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

  /** Tokens that the quota leaves now; infinite without a quota, and while the rest is unknown. */
  get quotaLeft(): number {
    this.#expire();
    return Math.max(0, this.#quotaRoom);
  }

  /** Sets the quota: `left` tokens were left when `counted` tokens had been counted. */
  allow(counted: CountedTokens, { left, until }: TokenAllowance): void {
    this.#quota = left === null ? null : chargedOf(counted) + Math.max(0, left);
    this.#quotaEndsAt = until;
  }

  /** Counts input and output tokens at once. */
  count(input: number, output: number): void {
    this.#input += input;
    this.#output += output;
    this.#options.shared()?.count(input + output);
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
    const refused = newInputs > 0 ? this.refuse(newInputs) : null;
    if (refused) return refused;
    this.#embeddedInputs -= inputs - newInputs;
    this.count(newInputs, 0);
    return null;
  }

  /**
   * Counts the tokens of a call, provisionally until its answer and then for good; a failed call has no outputs. Returns the same promise;
   * the counts are final before the caller's handlers run.
   *
   * @param cachedOf the number of inputs that a cache had, from a successful answer
   */
  during<T>(
    { inputs, outputs, cacheable }: CallTokens,
    result: Promise<Outcome<T>>,
    cachedOf?: (answer: T) => number,
  ): Promise<Outcome<T>> {
    this.#input += inputs - cacheable;
    this.#unsettledInputs += cacheable;
    this.#expectedOutputs += outputs;
    this.#options.shared()?.count(inputs + outputs);
    if (outputs > 0 || cacheable > 0) {
      void result.then((outcome) => {
        this.#expectedOutputs -= outputs;
        if (outcome.tag === 'ok') this.#output += outputs;
        else this.#options.shared()?.count(-outputs);
        if (cacheable > 0) this.#settle(cacheable, outcome.tag === 'ok' ? (cachedOf?.(outcome.val) ?? 0) : 0);
      });
    }
    return result;
  }

  /** Counts all inputs of an encoder's call against the limits while the call is under way. Returns the same promise, as `during` does. */
  encoding<T>(inputs: number, result: Promise<Outcome<T>>): Promise<Outcome<T>> {
    this.#changeEncoders((encoders) => encoders.begin(inputs));
    void result.then(() => this.#changeEncoders((encoders) => encoders.end(inputs)));
    return result;
  }

  /** Counts inputs that a GPU host has computed for calls of its encoders. */
  encoded(inputs: number): void {
    this.#changeEncoders((encoders) => encoders.compute(inputs));
    // Add `reserved` to leave out tokens of calls under way: the host may never compute them.
    if (this.#quotaRoom + this.#encoders.reserved < 0 && !this.#expire()) this.#options.quotaReached();
  }

  /**
   * The error when the inferlet may not request tokens, or null.
   *
   * @param wantedTokens the fewest tokens that the request can cost. The quota must have room for them; a limit ignores them.
   */
  refuse(wantedTokens: number): HandlerError | null {
    const { limit, shared } = this.#options;
    if (this.input + this.#encoders.reserved + this.#unsettledInputs + this.#output + this.#expectedOutputs > limit) {
      return handlerError('limit-exceeded', `the invocation's ${limit} tokens are used up (manifest: limits.tokens)`);
    }
    const refused = shared()?.refuseTokens();
    if (refused) return refused;
    if (wantedTokens <= this.#quotaRoom || this.#expire()) return null;
    this.#options.quotaReached();
    const text = `quota tokens: ${wantedTokens} are requested and ${this.quotaLeft} are left`;
    return handlerError('limit-exceeded', text);
  }

  #settle(inputs: number, cached: number): void {
    this.#unsettledInputs -= inputs;
    this.#input += inputs;
    this.#cached += Math.min(cached, inputs);
    if (this.#quotaRoom < 0 && !this.#expire()) this.#options.quotaReached();
  }

  #changeEncoders(change: (encoders: EncoderTokens) => void): void {
    const countBefore = this.#encoders.computed + this.#encoders.reserved;
    change(this.#encoders);
    this.#options.shared()?.count(this.#encoders.computed + this.#encoders.reserved - countBefore);
  }

  /** Drops the quota once its window has ended, and returns whether it did. Without a new `allow` there is no bound. */
  #expire(): boolean {
    if (this.#quotaEndsAt === null || this.#now() < this.#quotaEndsAt) return false;
    this.#quota = null;
    this.#quotaEndsAt = null;
    this.#options.quotaUnknown();
    return true;
  }

  /** Tokens that the quota leaves; negative once it is exceeded. */
  get #quotaRoom(): number {
    return this.#quota === null ? Number.POSITIVE_INFINITY : this.#quota - this.#charged;
  }

  /** Tokens that the quota counts. */
  get #charged(): number {
    return this.input + this.#encoders.reserved - this.#cached + this.#output + this.#expectedOutputs;
  }
}

const chargedOf = ({ inputTokens, outputTokens, cachedTokens }: CountedTokens): number =>
  inputTokens - cachedTokens + outputTokens;
