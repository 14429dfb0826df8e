import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { GrammarAccount } from './account.ts';
import { Matcher } from './matcher.ts';
import type { Answer } from './messages.ts';
import type { GrammarModel } from './service.ts';
import type { GrammarSource } from './translate/source.ts';
import { vocabularyOf } from './vocabulary.ts';
import type { Asker, LinkReply, WorkerLink } from './worker-link.ts';
import { MADE_ROOM, type Workers } from './workers.ts';

export interface Deadlines {
  /** For a compilation. */
  readonly compileMs: number;
  /** For a call of a matcher. */
  readonly operationMs: number;
  /** For the start of a worker, and for a worker to learn a vocabulary. */
  readonly startMs: number;
}

export interface GrammarJob {
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
export type Ask = (link: WorkerLink, isFollowUp: boolean) => Promise<LinkReply>;

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
