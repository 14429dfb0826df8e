import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { MatchStatus } from '#wit/generated/host.ts';
import type { GrammarAccount } from './account.ts';
import type { Grammar } from './compiled.ts';
import { forcedTokens, type Spelling } from './forced-tokens.ts';
import type { Answer } from './messages.ts';
import type { Asker, LinkReply, WorkerLink } from './worker-link.ts';

/** Maximum tokens that a matcher accepts. A matcher remembers all its tokens, to continue in another worker or as a fork. */
const MAX_TOKENS = 131_072;

const TOO_LONG = handlerError('limit-exceeded', `a matcher takes ${MAX_TOKENS} tokens at most; begin a new one`);
const NO_TOKENS = new Uint32Array(0);
const CLOSED = handlerError('closed', 'the matcher was dropped');

let lastId = 0;

/**
 * Matches a text against a grammar, token by token. Calls run in order; their promises never reject. When the matcher is dropped, its waiting
 * calls answer `closed`, unless a fork waits for them. The tenant's worker holds the state; when it has ended, the next worker replays the tokens.
 */
export class Matcher {
  readonly #grammar: Grammar;
  readonly #account: GrammarAccount;
  readonly #id: number;
  /** The tokens accepted so far, or the error that makes the matcher useless. */
  readonly #acceptedTokens: Promise<Outcome<number[]>>;
  /** Forks that still wait for the calls that were made on this matcher before the fork. */
  readonly #forks = new Set<Matcher>();
  /** The inferlet that pays for this matcher's requests. */
  readonly #asker: Asker;
  /** The most recent call. */
  #lastCall: Promise<unknown>;
  /** The worker in which the matcher is open. */
  #link: WorkerLink | undefined;
  #dropped = false;

  /** @param accepted the tokens accepted so far. The matcher takes over the list, and `account` already counts its tokens. */
  constructor(grammar: Grammar, account: GrammarAccount, accepted: Promise<Outcome<number[]>>) {
    lastId += 1;
    this.#id = lastId;
    this.#grammar = grammar;
    this.#account = account;
    this.#acceptedTokens = accepted;
    this.#lastCall = accepted;
    this.#asker = {
      refuse: () => (this.#unwanted ? CLOSED : account.refuse()),
      charge: (cpuMs) => account.charge(cpuMs),
    };
    grammar.hold();
  }

  /**
   * Accepts all of `tokens`, or accepts none and returns false when a token does not fit. Answers `invalid-argument` for ids outside the vocabulary.
   *
   * @param tokens copied; may be a view of a guest's memory
   */
  accept(tokens: Uint32Array): Promise<Outcome<boolean>> {
    if (tokens.length > MAX_TOKENS) return Promise.resolve(err(TOO_LONG));
    const copiedTokens = tokens.slice();
    return this.#call((accepted) => this.#accept(copiedTokens, accepted), copiedTokens.byteLength);
  }

  /**
   * Accepts and returns the tokens of the text that must come next. Returns no tokens where several texts may come next. See `forcedTokens`.
   *
   * @param maxTokens maximum number of tokens to accept
   */
  jump(spelling: Spelling, maxTokens: number): Promise<Outcome<Uint32Array>> {
    if (maxTokens === 0) return this.#call(async () => ok(NO_TOKENS));
    const matcher = this.#id;
    return this.#call(async (accepted) => {
      const forced = await this.#ask({ kind: 'forced', matcher });
      if (forced.tag === 'err') return forced;
      if (typeof forced.val !== 'object' || !('reaching' in forced.val)) return unexpected();
      const tokens = await forcedTokens(forced.val, spelling, { account: this.#account, refuse: this.#asker.refuse });
      if (tokens.tag === 'err') return tokens;
      const firstTokens = tokens.val.slice(0, maxTokens);
      const acceptance = firstTokens.length > 0 ? await this.#accept(firstTokens, accepted) : ok(true);
      if (acceptance.tag === 'err') return acceptance;
      // A tokenizer may spell a text with tokens that no mask allows, such as special tokens. The matcher has then accepted none.
      return ok(acceptance.val ? firstTokens : NO_TOKENS);
    });
  }

  /**
   * Tokens that may come next: bit `t % 32` of word `t / 32` for token `t`. When the text must end or has ended, these are the end-of-sequence
   * tokens alone.
   */
  mask(): Promise<Outcome<Uint32Array>> {
    const matcher = this.#id;
    return this.#call(async () => {
      const mask = await this.#ask({ kind: 'mask', matcher });
      if (mask.tag === 'err') return mask;
      return mask.val instanceof Uint32Array ? ok(mask.val) : unexpected();
    });
  }

  /**
   * The mask now and the masks after each further token of `guesses`, concatenated. Masks after a guess that does not fit allow every token.
   *
   * @param guesses copied; may be a view of a guest's memory
   */
  masks(guesses: Uint32Array): Promise<Outcome<Uint32Array>> {
    const matcher = this.#id;
    const copiedGuesses = guesses.slice();
    return this.#call(async () => {
      const masks = await this.#ask({ kind: 'masks', matcher, guesses: copiedGuesses });
      if (masks.tag === 'err') return masks;
      return masks.val instanceof Uint32Array ? ok(masks.val) : unexpected();
    }, copiedGuesses.byteLength);
  }

  status(): Promise<Outcome<MatchStatus>> {
    const matcher = this.#id;
    return this.#call(async () => {
      const status = await this.#ask({ kind: 'status', matcher });
      if (status.tag === 'err') return status;
      return typeof status.val === 'object' && 'mayEnd' in status.val ? ok(status.val) : unexpected();
    });
  }

  /** Takes back the last `tokenCount` accepted tokens. `invalid-argument` when fewer tokens were accepted. */
  rollback(tokenCount: number): Promise<Outcome<undefined>> {
    const matcher = this.#id;
    return this.#call(async (accepted) => {
      const rolledBack = await this.#ask({ kind: 'rollback', matcher, tokens: tokenCount });
      if (rolledBack.tag === 'err') return rolledBack;
      accepted.length -= tokenCount;
      this.#account.give(tokenCount);
      return ok(undefined);
    });
  }

  /** A new matcher with this matcher's state after the calls made so far. */
  fork(): Matcher {
    const accepted: Promise<Outcome<number[]>> = this.#call(async (tokens) => {
      const refused = fork.#unwanted ? CLOSED : this.#account.keep(tokens.length);
      return refused ? err(refused) : ok(tokens.slice());
    });
    const fork = new Matcher(this.#grammar, this.#account, accepted);
    if (this.#dropped) fork.drop();
    this.#forks.add(fork);
    void accepted.then(() => this.#forks.delete(fork));
    return fork;
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    void this.#lastCall.then(async () => {
      const accepted = await this.#acceptedTokens;
      if (accepted.tag === 'ok') this.#account.give(accepted.val.length);
      void this.#link?.request({ kind: 'close', matcher: this.#id }, this.#grammar.job.deadlines.operationMs);
      this.#grammar.release();
    });
  }

  async #accept(tokens: Uint32Array, accepted: number[]): Promise<Outcome<boolean>> {
    if (accepted.length + tokens.length > MAX_TOKENS) return err(TOO_LONG);
    const refused = this.#account.keep(tokens.length);
    if (refused) return err(refused);
    const acceptance = await this.#ask({ kind: 'accept', matcher: this.#id, tokens });
    if (acceptance.tag === 'ok' && acceptance.val === true) {
      for (const token of tokens) accepted.push(token);
      return ok(true);
    }
    this.#account.give(tokens.length);
    return acceptance.tag === 'ok' ? ok(false) : acceptance;
  }

  /** True when the matcher and all forks that wait for its calls are dropped, so that its waiting calls need not run. */
  get #unwanted(): boolean {
    return this.#dropped && [...this.#forks].every((fork) => fork.#unwanted);
  }

  /** Runs a call after all earlier calls. @param bytes memory that the call holds while it waits */
  #call<T>(run: (accepted: number[]) => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
    const refusedAtOnce = this.#dropped ? CLOSED : this.#account.begin(bytes);
    if (refusedAtOnce) return Promise.resolve(err(refusedAtOnce));
    const result = this.#lastCall.then(async () => {
      const accepted = await this.#acceptedTokens;
      const refused = this.#asker.refuse();
      let outcome: Outcome<T>;
      if (accepted.tag === 'err') outcome = accepted;
      else if (refused) outcome = err(refused);
      else outcome = await run(accepted.val);
      this.#account.end(bytes);
      return outcome;
    });
    this.#lastCall = result;
    return result;
  }

  /** Sends a request to the tenant's worker. First opens the matcher there if that worker does not have it. */
  #ask(request: Parameters<WorkerLink['request']>[0]): Promise<Outcome<Answer>> {
    const { operationMs } = this.#grammar.job.deadlines;
    return this.#grammar.use(this.#asker, async (link, isFollowUp) => {
      if (this.#link === link) return link.request(request, operationMs, this.#asker, isFollowUp);
      const opened = await this.#open(link, isFollowUp);
      return opened.tag === 'ok' ? link.request(request, operationMs, this.#asker, true) : opened;
    });
  }

  /** Opens the matcher in a worker with the tokens accepted so far. */
  async #open(link: WorkerLink, isFollowUp: boolean): Promise<LinkReply> {
    const { id, deadlines } = this.#grammar.job;
    const accepted = await this.#acceptedTokens;
    const tokens = Uint32Array.from(accepted.tag === 'ok' ? accepted.val : []);
    const request = { kind: 'open', matcher: this.#id, grammar: id, tokens } as const;
    const opened = await link.request(request, deadlines.compileMs, this.#asker, isFollowUp);
    if (opened.tag === 'ok') this.#link = link;
    return opened;
  }
}

function unexpected(): Outcome<never> {
  return err(handlerError('internal', 'the grammar worker answered another kind of request'));
}
