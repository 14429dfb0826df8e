import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { SharedLimits } from './own.ts';

export interface TokensOptions {
  /** Most tokens of the invocation. */
  readonly limit: number;
  /** What counts for its family as well. */
  readonly shared: () => Pick<SharedLimits, 'count' | 'refuseTokens'> | null;
  /** Told when the quota has no room for what is asked: the invocation is to be ended. */
  readonly quotaReached: () => void;
}

/** Tokens as they are counted against a quota: those that went in, but for those that a cache had, and those that came out. */
export interface CountedTokens {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
}

/**
 * Tokens of one inferlet. What goes in counts when it is asked for, what comes out once it is there; against the limits it counts from the
 * asking on, so that calls which are under way together stay within them.
 */
export class Tokens {
  readonly #options: TokensOptions;
  #input = 0;
  #output = 0;
  #cached = 0;
  /** Asked for and not there yet. */
  #expected = 0;
  /** Most that may be counted against the quota; null for no bound. */
  #quota: number | null = null;

  constructor(options: TokensOptions) {
    this.#options = options;
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

  /** What the quota leaves now; infinite without one. */
  get quotaLeft(): number {
    return Math.max(0, this.#room);
  }

  /** The quota had so many tokens left when so many were counted. */
  allow(counted: CountedTokens, left: number | null): void {
    this.#quota = left === null ? null : chargedOf(counted) + Math.max(0, left);
  }

  /** Tokens that went in and came out. */
  count(input: number, output: number): void {
    this.#input += input;
    this.#output += output;
    this.#options.shared()?.count(input + output);
  }

  countCached(tokens: number): void {
    this.#cached += tokens;
  }

  /** Counts what goes in, and what comes out when the result is there; a call that fails brings nothing out. */
  during<T>(input: number, output: number, result: Promise<Outcome<T>>): Promise<Outcome<T>> {
    this.#input += input;
    this.#expected += output;
    this.#options.shared()?.count(input + output);
    if (output === 0) return result;
    return result.then((outcome) => {
      this.#expected -= output;
      if (outcome.tag === 'ok') this.#output += output;
      return outcome;
    });
  }

  /** Why no tokens may be asked for, or null. @param wanted how many are */
  refuse(wanted: number): HandlerError | null {
    const { limit, shared } = this.#options;
    if (this.#input + this.#output + this.#expected > limit) {
      return handlerError('limit-exceeded', `the invocation's ${limit} tokens are used up (manifest: limits.tokens)`);
    }
    const refused = shared()?.refuseTokens();
    if (refused) return refused;
    if (wanted <= this.#room) return null;
    this.#options.quotaReached();
    const text = `quota tokens: ${wanted} are asked for and ${this.quotaLeft} are left`;
    return handlerError('limit-exceeded', text);
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
