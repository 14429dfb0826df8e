import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { SharedLimits } from './own.ts';

export interface TokensOptions {
  /** Most tokens of the invocation. */
  readonly limit: number;
  /** What counts for its family as well. */
  readonly shared: () => Pick<SharedLimits, 'count' | 'refuseTokens'> | null;
  /** Told when the quota has no room for what is asked, or had none for what was: the invocation is to be ended. */
  readonly quotaReached: () => void;
  /** Told when a window of the quota has ended: what is left now is to be asked. */
  readonly quotaUnknown: () => void;
  /** Milliseconds since the Unix epoch; the system's by default. */
  readonly now?: () => number;
}

/** Tokens as they are counted against a quota: those that went in, but for those that a cache had, and those that came out. */
export interface CountedTokens {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
}

/** What a quota leaves. */
export interface TokenAllowance {
  /** Null for no bound. */
  readonly left: number | null;
  /** When its window ends, milliseconds since the Unix epoch: from then on more are left, and nobody knows how many; null for never. */
  readonly until: number | null;
}

/** What a call takes in and brings out. */
export interface CallTokens {
  readonly inputs: number;
  readonly outputs: number;
  /** Of the inputs, those that a cache may have: whether they are charged is known with the answer. */
  readonly cacheable: number;
}

/**
 * Tokens of one inferlet. What goes in counts when it is asked for, what a cache may have of it and what comes out once the answer is there.
 * Against the limits all of it counts from the asking on, so that calls which are under way together stay within them, and so does what is
 * surely charged against the quota. Inputs that turn out not to be cached may pass the quota: that ends the invocation, with these counted.
 */
export class Tokens {
  readonly #options: TokensOptions;
  readonly #now: () => number;
  #input = 0;
  #output = 0;
  #cached = 0;
  /** Will come out, and are not there yet. */
  #expected = 0;
  /** Went in, and it is not known yet whether a cache had them. */
  #unsettled = 0;
  /** Most that may be counted against the quota; null for no bound. */
  #quota: number | null = null;
  #until: number | null = null;

  constructor(options: TokensOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  get input(): number {
    return this.#input;
  }

  get output(): number {
    return this.#output;
  }

  /** Of those that went in, those that a prefix cache had: they were not computed again. */
  get cached(): number {
    return this.#cached;
  }

  /** What the quota leaves now; infinite without one, and while nobody knows. */
  get quotaLeft(): number {
    this.#expire();
    return Math.max(0, this.#room);
  }

  /** The quota had so much left when so many were counted. */
  allow(counted: CountedTokens, { left, until }: TokenAllowance): void {
    this.#quota = left === null ? null : chargedOf(counted) + Math.max(0, left);
    this.#until = until;
  }

  /** Tokens that went in and came out. */
  count(input: number, output: number): void {
    this.#input += input;
    this.#output += output;
    this.#options.shared()?.count(input + output);
  }

  /**
   * Counts the tokens of a call until its answer is there and then for good; a call that fails brings nothing out. Returns the result as it
   * is, and what it counts is counted before anybody hears of it.
   *
   * @param cachedOf of a good answer, how many inputs a cache had
   */
  during<T>(
    { inputs, outputs, cacheable }: CallTokens,
    result: Promise<Outcome<T>>,
    cachedOf?: (answer: T) => number,
  ): Promise<Outcome<T>> {
    this.#input += inputs - cacheable;
    this.#unsettled += cacheable;
    this.#expected += outputs;
    this.#options.shared()?.count(inputs + outputs);
    if (outputs > 0 || cacheable > 0) {
      void result.then((outcome) => {
        this.#expected -= outputs;
        if (outcome.tag === 'ok') this.#output += outputs;
        if (cacheable > 0) this.#settle(cacheable, outcome.tag === 'ok' ? (cachedOf?.(outcome.val) ?? 0) : 0);
      });
    }
    return result;
  }

  /** Why no tokens may be asked for, or null. @param wanted how many are charged at least */
  refuse(wanted: number): HandlerError | null {
    const { limit, shared } = this.#options;
    if (this.#input + this.#unsettled + this.#output + this.#expected > limit) {
      return handlerError('limit-exceeded', `the invocation's ${limit} tokens are used up (manifest: limits.tokens)`);
    }
    const refused = shared()?.refuseTokens();
    if (refused) return refused;
    if (wanted <= this.#room || this.#expire()) return null;
    this.#options.quotaReached();
    const text = `quota tokens: ${wanted} are asked for and ${this.quotaLeft} are left`;
    return handlerError('limit-exceeded', text);
  }

  #settle(inputs: number, cached: number): void {
    this.#unsettled -= inputs;
    this.#input += inputs;
    this.#cached += Math.min(cached, inputs);
    if (this.#room < 0 && !this.#expire()) this.#options.quotaReached();
  }

  /** Forgets what was left once its window has ended; whether it had. Until the next answer there is no bound. */
  #expire(): boolean {
    if (this.#until === null || this.#now() < this.#until) return false;
    this.#quota = null;
    this.#until = null;
    this.#options.quotaUnknown();
    return true;
  }

  /** What the quota leaves; less than 0 once it is passed. */
  get #room(): number {
    return this.#quota === null ? Number.POSITIVE_INFINITY : this.#quota - this.#charged;
  }

  get #charged(): number {
    return this.#input - this.#cached + this.#output + this.#expected;
  }
}

const chargedOf = ({ inputTokens, outputTokens, cachedTokens }: CountedTokens): number =>
  inputTokens - cachedTokens + outputTokens;
