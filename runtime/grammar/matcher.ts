import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Grammar } from './compiled.ts';
import type { Answer, MatchStatus } from './messages.ts';
import type { LinkReply, WorkerLink } from './worker-link.ts';

/** Tokens that a matcher can have accepted: it remembers them all, to go on from there in another worker or as a fork. */
const MAX_TOKENS = 131_072;

let lastId = 0;

/**
 * Where a text of tokens stands in a grammar. Calls run in order; none of their promises rejects. The state lies in the tenant's worker; when that
 * has ended, the accepted tokens are replayed in the next one.
 */
export class Matcher {
  readonly #grammar: Grammar;
  readonly #id: number;
  readonly #accepted: Promise<number[]>;
  /** The last call so far. */
  #last: Promise<unknown>;
  /** The worker in which it is open. */
  #link: WorkerLink | undefined;
  #dropped = false;

  /** @param accepted the tokens after which it stands, which become its own */
  constructor(grammar: Grammar, accepted: Promise<number[]>) {
    lastId += 1;
    this.#id = lastId;
    this.#grammar = grammar;
    this.#accepted = accepted;
    this.#last = accepted;
    grammar.hold();
  }

  /** Takes all of `tokens`, or none when one does not fit: then it says false. `invalid-argument` for ids outside the vocabulary. */
  accept(tokens: Uint32Array): Promise<Outcome<boolean>> {
    const matcher = this.#id;
    return this.#call(async (accepted) => {
      if (accepted.length + tokens.length > MAX_TOKENS) {
        return err(handlerError('limit-exceeded', `a matcher takes ${MAX_TOKENS} tokens at most; begin a new one`));
      }
      const taken = await this.#ask({ kind: 'accept', matcher, tokens });
      if (taken.tag === 'err') return taken;
      if (taken.val === true) for (const token of tokens) accepted.push(token);
      return ok(taken.val === true);
    });
  }

  /** Tokens that may come next: bit `t % 32` of word `t / 32`. Where only the end may come, the end-of-sequence tokens alone. */
  mask(): Promise<Outcome<Uint32Array>> {
    const matcher = this.#id;
    return this.#call(async () => {
      const mask = await this.#ask({ kind: 'mask', matcher });
      if (mask.tag === 'err') return mask;
      return mask.val instanceof Uint32Array ? ok(mask.val) : unexpected();
    });
  }

  status(): Promise<Outcome<MatchStatus>> {
    const matcher = this.#id;
    return this.#call(async () => {
      const status = await this.#ask({ kind: 'status', matcher });
      if (status.tag === 'err') return status;
      return typeof status.val === 'object' && 'mayEnd' in status.val ? ok(status.val) : unexpected();
    });
  }

  /** Takes the last `tokens` accepted ones back. `invalid-argument` for more than there are. */
  rollback(tokens: number): Promise<Outcome<undefined>> {
    const matcher = this.#id;
    return this.#call(async (accepted) => {
      const back = await this.#ask({ kind: 'rollback', matcher, tokens });
      if (back.tag === 'err') return back;
      accepted.length -= tokens;
      return ok(undefined);
    });
  }

  /** A matcher of its own where this one stands after the calls made so far. */
  fork(): Matcher {
    const accepted = this.#last.then(async () => (await this.#accepted).slice());
    const fork = new Matcher(this.#grammar, accepted);
    if (this.#dropped) fork.drop();
    return fork;
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    void this.#last.then(() => {
      void this.#link?.request({ kind: 'close', matcher: this.#id }, this.#grammar.job.deadlines.operationMs);
      this.#grammar.release();
    });
  }

  #call<T>(run: (accepted: number[]) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    if (this.#dropped) return Promise.resolve(err(handlerError('closed', 'the matcher was dropped')));
    const result = this.#last.then(async () => run(await this.#accepted));
    this.#last = result;
    return result;
  }

  #ask(request: Parameters<WorkerLink['request']>[0]): Promise<Outcome<Answer>> {
    return this.#grammar.use(async (link) => {
      const opened = await this.#open(link);
      return opened.tag === 'ok' ? link.request(request, this.#grammar.job.deadlines.operationMs) : opened;
    });
  }

  async #open(link: WorkerLink): Promise<LinkReply> {
    if (this.#link === link) return { tag: 'ok', val: undefined };
    const { id, deadlines } = this.#grammar.job;
    const tokens = Uint32Array.from(await this.#accepted);
    const opened = await link.request({ kind: 'open', matcher: this.#id, grammar: id, tokens }, deadlines.compileMs);
    if (opened.tag === 'ok') this.#link = link;
    return opened;
  }
}

function unexpected(): Outcome<never> {
  return err(handlerError('internal', 'the grammar worker answered something else'));
}
