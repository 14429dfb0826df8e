import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { MatchStatus } from '#wit/generated/host.ts';
import type { GrammarAccount } from './account.ts';
import type { Answer, Forced } from './messages.ts';
import type { GrammarSource } from './translate/source.ts';
import { type GrammarModel, vocabularyOf } from './vocabulary.ts';
import { type Asker, type LinkReply, MADE_ROOM, type WorkerLink, type Workers } from './workers.ts';

export interface Deadlines {
  /** For a compilation. */
  readonly compileMs: number;
  /** For a call of a matcher. */
  readonly operationMs: number;
  /** For the start of a worker, and for a worker to learn a vocabulary. */
  readonly startMs: number;
}

interface GrammarJob {
  readonly id: number;
  readonly tenant: string;
  readonly model: GrammarModel;
  readonly source: GrammarSource;
  readonly workers: Workers;
  readonly deadlines: Deadlines;
  /** Called when an unused grammar gets its first holder: a `CompiledGrammar` or a `Matcher`. */
  readonly onUsed: () => void;
  /** Called when the last holder releases the grammar. */
  readonly onUnused: () => void;
}

const CLOSED = handlerError('closed', 'the grammar was dropped');

/** Maximum number of attempts at a request while other requests keep ending its worker. */
const MAX_ATTEMPTS = 3;

/** Sends the requests of one operation; `isFollowUp` is true when a compilation came before them. */
type Ask = (link: WorkerLink, isFollowUp: boolean) => Promise<LinkReply>;

/** A source that is compiled in its tenant's worker. When that worker has ended, the source is compiled again in the tenant's next worker. */
export class Grammar {
  readonly job: GrammarJob;
  /** For each worker, the reply to the compilation. */
  readonly #compiled = new WeakMap<WorkerLink, Promise<LinkReply>>();
  /** The worker that has the grammar's source, if it still lives. */
  #link: WorkerLink | undefined;
  /** The worker that has compiled the grammar. */
  #readyIn: WorkerLink | undefined;
  #holders = 0;
  #failure: HandlerError | undefined;
  #isForgotten = false;

  constructor(job: GrammarJob) {
    this.job = job;
  }

  get failed(): boolean {
    return this.#failure !== undefined;
  }

  get unused(): boolean {
    return this.#holders === 0;
  }

  hold(): void {
    this.#holders += 1;
    if (this.#holders === 1) this.job.onUsed();
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders === 0 && !this.#isForgotten) this.job.onUnused();
  }

  /** Runs `ask` in a worker that has compiled the grammar; `asker` pays for a compilation if one is needed. Never rejects. */
  async use(asker: Asker, ask: Ask): Promise<Outcome<Answer>> {
    try {
      let reason = '';
      for (let attempt = 0; attempt < MAX_ATTEMPTS; ) {
        const refused = this.#failure ?? asker.refuse();
        if (refused) return err(refused);
        const { tenant, workers } = this.job;
        const reply = await workers.with(tenant, (link) => this.#ask(link, asker, ask));
        if (reply.tag === 'err') return reply;
        if (reply.val.tag !== 'ended') return reply.val;
        if (reply.val.culprit) return err(this.#fail(reply.val.val));
        // The worker made room for another tenant. The request did not fail, so this attempt does not count.
        if (reply.val.val === MADE_ROOM) continue;
        attempt += 1;
        reason = reply.val.val.val;
      }
      return err(handlerError('unavailable', `the grammar worker ended again and again (${reason}); try again later`));
    } catch (error) {
      return err(handlerError('internal', `the grammar failed: ${unexpected(error)}`));
    }
  }

  /** Frees the memory that the grammar takes in the worker. Afterwards, the release by the last holder does not call `onUnused`. */
  forget(): void {
    this.#isForgotten = true;
    void this.#link?.request({ kind: 'forget', grammar: this.job.id }, this.job.deadlines.operationMs);
  }

  async #ask(link: WorkerLink, asker: Asker, ask: Ask): Promise<LinkReply> {
    const isFollowUp = this.#readyIn !== link;
    let compiled = this.#compiled.get(link);
    if (!compiled) {
      compiled = this.#compile(link, asker);
      this.#compiled.set(link, compiled);
      compiled.catch(() => this.#compiled.delete(link));
    }
    const reply = await compiled;
    return reply.tag === 'ok' ? ask(link, isFollowUp) : reply;
  }

  async #compile(link: WorkerLink, asker: Asker): Promise<LinkReply> {
    const { id, model, source, deadlines } = this.job;
    const vocabulary = await vocabularyOf(model.tokenizer, model.vocabularySize);
    const learned = await link.learn(vocabulary, deadlines.startMs);
    // The grammar is not at fault when the worker fails to learn the vocabulary, so the grammar must not count as failed.
    if (learned.tag !== 'ok') return learned.tag === 'ended' ? { ...learned, culprit: false } : learned;
    this.#link = link;
    const request = { kind: 'compile', grammar: id, vocabulary: vocabulary.id, source } as const;
    const reply = await link.request(request, deadlines.compileMs, {
      refuse: () => (this.unused ? CLOSED : asker.refuse()),
      charge: (cpuMs) => asker.charge(cpuMs),
    });
    if (reply.tag === 'ok') this.#readyIn = link;
    if (reply.tag === 'err') this.#fail(reply.val);
    // If only this asker withdrew, another asker may still compile the grammar.
    if (reply.tag === 'ended') this.#compiled.delete(link);
    return reply;
  }

  #fail(failure: HandlerError): HandlerError {
    this.#failure ??= failure;
    return this.#failure;
  }
}

/** A holder's reference to a compiled grammar. */
export class CompiledGrammar {
  readonly #grammar: Grammar;
  readonly #account: GrammarAccount;
  readonly #ready: Promise<Outcome<undefined>>;
  #dropped = false;

  /** @param account must have begun a call of `bytes`, which ends when the grammar is compiled */
  constructor(grammar: Grammar, account: GrammarAccount, bytes: number) {
    this.#grammar = grammar;
    this.#account = account;
    grammar.hold();
    const asker: Asker = {
      refuse: () => (grammar.unused ? CLOSED : account.refuse()),
      charge: (cpuMs) => account.charge(cpuMs),
    };
    this.#ready = grammar
      .use(asker, async () => ({ tag: 'ok', val: undefined }))
      .then((outcome) => {
        account.end(bytes);
        return outcome.tag === 'ok' ? ok(undefined) : outcome;
      });
  }

  /**
   * Resolves when the grammar is compiled, and never rejects. The error is `invalid-argument` for a source that is invalid or too large,
   * `limit-exceeded` for a source that takes too much time or memory, `unavailable` when no worker could compile the source, and `closed` when the
   * grammar lost its last holder or the service was closed.
   */
  ready(): Promise<Outcome<undefined>> {
    return this.#ready;
  }

  /** A matcher at the beginning of a text. It may outlive this reference; a matcher made after `drop` answers `closed`. */
  matcher(): Matcher {
    const matcher = new Matcher(this.#grammar, this.#account, Promise.resolve(ok([])));
    if (this.#dropped) matcher.drop();
    return matcher;
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#grammar.release();
  }
}

/** Maximum tokens that a matcher accepts. A matcher remembers all its tokens, to continue in another worker or as a fork. */
const MAX_TOKENS = 131_072;

const TOO_LONG = handlerError('limit-exceeded', `a matcher takes ${MAX_TOKENS} tokens at most; begin a new one`);
const NO_TOKENS = new Uint32Array(0);
const MATCHER_CLOSED = handlerError('closed', 'the matcher was dropped');

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
      refuse: () => (this.#unwanted ? MATCHER_CLOSED : account.refuse()),
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
      if (typeof forced.val !== 'object' || !('reaching' in forced.val)) return unexpectedAnswer();
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
      return mask.val instanceof Uint32Array ? ok(mask.val) : unexpectedAnswer();
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
      return masks.val instanceof Uint32Array ? ok(masks.val) : unexpectedAnswer();
    }, copiedGuesses.byteLength);
  }

  status(): Promise<Outcome<MatchStatus>> {
    const matcher = this.#id;
    return this.#call(async () => {
      const status = await this.#ask({ kind: 'status', matcher });
      if (status.tag === 'err') return status;
      return typeof status.val === 'object' && 'mayEnd' in status.val ? ok(status.val) : unexpectedAnswer();
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
      const refused = fork.#unwanted ? MATCHER_CLOSED : this.#account.keep(tokens.length);
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
    const refusedAtOnce = this.#dropped ? MATCHER_CLOSED : this.#account.begin(bytes);
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

function unexpectedAnswer(): Outcome<never> {
  return err(handlerError('internal', 'the grammar worker answered another kind of request'));
}

/** A model's tokenizer, with the way to run it on texts of guests. */
export interface Spelling {
  readonly tokenizer: Pick<Tokenizer, 'tokenBytes' | 'decoding'>;
  /** Token ids of a text in which special tokens are ordinary text. */
  encode(text: string): Outcome<Uint32Array> | Promise<Outcome<Uint32Array>>;
}

/** The user who is charged for the tokenization of texts. */
interface Payer {
  readonly account: Pick<GrammarAccount, 'turn' | 'runCharged'>;
  /** Returns an error when the tokens are not wanted any more, or when the user's time is used up; else null. */
  refuse(): HandlerError | null;
}

const NOTHING_FORCED: readonly number[] = [];

/**
 * The tokens of a forced text that stay the same, whatever text of the grammar follows (jump-forward decoding: Zheng et al., "SGLang", 2024).
 * SGLang tokenizes again when the text goes on. This function instead leaves out the last tokens, which a continuation may change.
 *
 * A tokenization of the forced text with a continuation is one of two cases. If a token ends where the forced text ends, no merge crosses this end,
 * so the forced text has the same tokens as without the continuation. Otherwise a token begins at one of the offsets `reaching` and crosses the end,
 * so the text before this offset has the same tokens as without the rest. The common prefix of all these tokenizations is therefore certain.
 *
 * Each tokenization waits for its own turn of the event loop, and the payer is charged for it.
 *
 * @returns an empty list when the tokenizer does not spell the text exactly; errors of the tokenizer and of `payer.refuse`
 */
async function forcedTokens(forced: Forced, spelling: Spelling, payer: Payer): Promise<Outcome<Uint32Array>> {
  const { bytes, reaching } = forced;
  let certain = bytes.length > 0 ? await spell(bytes, spelling, payer) : ok(NOTHING_FORCED);
  for (const offset of reaching) {
    if (certain.tag === 'err') return certain;
    if (certain.val.length === 0) break;
    const prefixLength = characterStartAt(bytes, offset);
    const prefixTokens =
      prefixLength > 0 ? await spell(bytes.subarray(0, prefixLength), spelling, payer) : ok(NOTHING_FORCED);
    if (prefixTokens.tag === 'err') return prefixTokens;
    const { val: tokens } = prefixTokens;
    // If the offset lies within a character, the token before the offset ends with the first bytes of this character. The prefix has no such token,
    // so its last token is not certain.
    const knownTokens = prefixLength < offset ? tokens.slice(0, -1) : tokens;
    const { val: all } = certain;
    const differs = all.findIndex((token, i) => token !== knownTokens[i]);
    if (differs >= 0) certain = ok(all.slice(0, differs));
  }
  return certain.tag === 'ok' ? ok(Uint32Array.from(certain.val)) : certain;
}

/** Tokenizes `bytes` as the continuation of a text. Returns no tokens when the tokens do not spell exactly these bytes. */
async function spell(
  bytes: Uint8Array,
  { tokenizer, encode }: Spelling,
  { account, refuse }: Payer,
): Promise<Outcome<readonly number[]>> {
  await account.turn();
  const refused = refuse();
  if (refused) return err(refused);
  // SentencePiece tokenizers put a space before every text. A line break in front separates the space from the text.
  const front = tokenizer.decoding.stripsLeadingSpace ? '\n' : '';
  const encoded = await account.runCharged(() => encode(`${front}${Buffer.from(bytes).toString()}`));
  return encoded.tag === 'ok' ? ok(account.runCharged(() => tail(bytes, encoded.val, tokenizer))) : encoded;
}

/** The tokens at the end of `tokens` that spell `bytes`; none when there are no such tokens. */
function tail(bytes: Uint8Array, tokens: Uint32Array, tokenizer: Spelling['tokenizer']): readonly number[] {
  let first = tokens.length;
  let remainingBytes = bytes.length;
  while (remainingBytes > 0 && first > 0) {
    first -= 1;
    const token = tokenizer.tokenBytes(tokens[first] as number);
    remainingBytes -= token.length;
    if (
      remainingBytes < 0 ||
      Buffer.compare(token, bytes.subarray(remainingBytes, remainingBytes + token.length)) !== 0
    )
      return NOTHING_FORCED;
  }
  return remainingBytes === 0 ? [...tokens.subarray(first)] : NOTHING_FORCED;
}

/** The offset at which the character around `offset` begins. */
function characterStartAt(bytes: Uint8Array, offset: number): number {
  let characterStart = offset;
  while (characterStart > 0 && ((bytes[characterStart] as number) & 0xc0) === 0x80) characterStart -= 1;
  return characterStart;
}
