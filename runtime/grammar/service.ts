import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { GrammarAccount } from './account.ts';
import { CompiledGrammar, type Deadlines, Grammar } from './compiled.ts';
import { Shelves } from './shelves.ts';
import { type GrammarSource, refuseSource } from './translate/source.ts';
import type { GrammarModel } from './vocabulary.ts';
import { Workers } from './workers.ts';

export { GrammarAccount } from './account.ts';
export type { CompiledGrammar, Matcher, Spelling } from './compiled.ts';
export type { GrammarSource } from './translate/source.ts';

interface GrammarOptions {
  /** Maximum worker threads, one per tenant; 8 by default. */
  readonly maxWorkers?: number;
  /** An idle worker ends after this time; 30 s by default. */
  readonly idleMs?: number;
  /** Time for which a worker serves its tenant although other tenants wait; 2 s by default. */
  readonly turnMs?: number;
  /** Time limit for compiling one grammar; 2 s by default. */
  readonly compileMs?: number;
  /** Time limit for one call of a matcher; 1 s by default. */
  readonly operationMs?: number;
  /** JavaScript heap of a worker, MiB; 384 by default. */
  readonly heapMb?: number;
  /** Memory for the sources of all grammars, which tenants share; 256 MiB by default. */
  readonly sourceBytes?: number;
}

/** Time limit for a worker's start, and for reading a vocabulary, on a loaded machine. */
const START_MS = 10_000;
/** Longest wait of a tenant for a worker while all workers serve other tenants. */
const PLACE_MS = 10_000;
/** Bytes for each character of a source: two in the source, and two in the key by which the grammar is found. */
const CHARACTER_BYTES = 4;

/**
 * Compiles grammars and matches texts of tokens against them, in worker threads: sources are untrusted and may take much time and memory.
 * Each tenant has its own worker. A worker that exceeds its deadline or memory is ended; the grammar at fault then answers an error, and
 * the worker's other grammars and matchers are restored at their next use.
 */
export class GrammarService {
  readonly #workers: Workers;
  readonly #deadlines: Deadlines;
  /** Grammars by tenant, and by model and source. */
  readonly #shelves: Shelves<Grammar>;
  /** Id of each tokenizer, for the keys of grammars. */
  readonly #tokenizers = new WeakMap<Tokenizer, number>();
  #lastId = 0;

  constructor(options: GrammarOptions = {}) {
    const { maxWorkers = 8, idleMs = 30_000, turnMs = 2000, heapMb = 384 } = options;
    const { compileMs = 2000, operationMs = 1000 } = options;
    this.#shelves = new Shelves(options.sourceBytes ?? 256 << 20, (grammar) => grammar.forget());
    this.#deadlines = { compileMs, operationMs, startMs: START_MS };
    this.#workers = new Workers({
      maxWorkers,
      idleMs,
      turnMs,
      heapMb,
      startMs: START_MS,
      placeMs: PLACE_MS,
      onEnd: (tenant) => this.#shelves.trim(tenant, 0),
    });
  }

  /** Number of worker threads. */
  get workers(): number {
    return this.#workers.count;
  }

  /**
   * Starts compiling; `ready` and the matchers report failures. The same source of a tenant is compiled once.
   *
   * @returns an error at once when the source is too long, the account is at its bounds, or the tenant's sources take their share of memory.
   *   The service then keeps no reference to the source.
   */
  compile(
    tenant: string,
    model: GrammarModel,
    source: GrammarSource,
    account = new GrammarAccount(),
  ): Outcome<CompiledGrammar> {
    const text = source.tag === 'json' ? '' : source.val;
    const bytes = Buffer.byteLength(text);
    const refused = refuseSource(source) ?? account.begin(bytes);
    if (refused) return err(refused);
    const key = `${this.#tokenizerId(model.tokenizer)} ${model.vocabularySize} ${source.tag} ${text}`;
    const existing = this.#shelves.get(tenant, key);
    const grammar = existing && !existing.failed ? existing : this.#make(tenant, model, source, key);
    if (!grammar) {
      account.end(bytes);
      const reason = "the sources of the tenant's grammars take their share of memory; drop some, or use smaller ones";
      return err(handlerError('limit-exceeded', reason));
    }
    return ok(new CompiledGrammar(grammar, account, bytes));
  }

  /** Ends all workers. Calls then answer `closed`. */
  close(): Promise<void> {
    this.#shelves.clear();
    return this.#workers.close();
  }

  #tokenizerId(tokenizer: Tokenizer): number {
    let id = this.#tokenizers.get(tokenizer);
    if (id === undefined) {
      this.#lastId += 1;
      id = this.#lastId;
      this.#tokenizers.set(tokenizer, id);
    }
    return id;
  }

  /** Makes a grammar of the source; null when the tenant's grammars leave no room for the source. */
  #make(tenant: string, model: GrammarModel, source: GrammarSource, key: string): Grammar | null {
    this.#lastId += 1;
    const grammar: Grammar = new Grammar({
      id: this.#lastId,
      tenant,
      model,
      source,
      workers: this.#workers,
      deadlines: this.#deadlines,
      onUsed: () => this.#shelves.use(grammar),
      onUnused: () => this.#shelves.release(grammar, !grammar.failed),
    });
    return this.#shelves.add(tenant, key, key.length * CHARACTER_BYTES, grammar) ? grammar : null;
  }
}
