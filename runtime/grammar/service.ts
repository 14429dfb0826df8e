import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import { GrammarAccount } from './account.ts';
import { CompiledGrammar, type Deadlines, Grammar } from './compiled.ts';
import { type GrammarSource, refuseSource } from './translate/source.ts';
import { Workers } from './workers.ts';

export { GrammarAccount } from './account.ts';
export type { CompiledGrammar } from './compiled.ts';
export type { Spelling } from './forced-tokens.ts';
export type { Matcher } from './matcher.ts';
export type { GrammarSource } from './translate/source.ts';

/** The model whose tokens a grammar matches. */
export interface GrammarModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Number of the model's tokens; masks have a bit for each. */
  readonly vocabularySize: number;
}

export interface GrammarOptions {
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
/** Maximum grammars of a tenant that stay compiled although no inferlet holds them. */
const MAX_UNUSED = 16;
/** Bytes for each character of a source: two in the source, and two in the key by which the grammar is found. */
const CHARACTER_BYTES = 4;

/** Grammars of one tenant. */
interface Shelf {
  /** Grammars by model and source. */
  readonly byKey: Map<string, Grammar>;
  /** Grammars that no inferlet holds, with their keys in `byKey`; the most recently used last. */
  readonly unused: Map<Grammar, string>;
}

/**
 * Compiles grammars and matches texts of tokens against them, in worker threads: sources are untrusted and may take much time and memory.
 * Each tenant has its own worker. A worker that exceeds its deadline or memory is ended; the grammar at fault then answers an error, and
 * the worker's other grammars and matchers are restored at their next use.
 */
export class GrammarService {
  readonly #workers: Workers;
  readonly #deadlines: Deadlines;
  /** Shelves by tenant. */
  readonly #shelves = new Map<string, Shelf>();
  /** Memory for the sources of all grammars. */
  readonly #sourceBytes: number;
  /** Bytes of sources by tenant, with a fair share for each. */
  readonly #sources: Shares;
  /** Id of each tokenizer, for the keys of grammars. */
  readonly #tokenizers = new WeakMap<Tokenizer, number>();
  #lastId = 0;

  constructor(options: GrammarOptions = {}) {
    const { maxWorkers = 8, idleMs = 30_000, turnMs = 2000, heapMb = 384 } = options;
    const { compileMs = 2000, operationMs = 1000 } = options;
    this.#sourceBytes = options.sourceBytes ?? 256 << 20;
    this.#sources = new Shares(this.#sourceBytes);
    this.#deadlines = { compileMs, operationMs, startMs: START_MS };
    this.#workers = new Workers({
      maxWorkers,
      idleMs,
      turnMs,
      heapMb,
      startMs: START_MS,
      placeMs: PLACE_MS,
      onEnd: (tenant) => this.#trim(tenant, 0),
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
    const existing = this.#shelves.get(tenant)?.byKey.get(key);
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
    if (!this.#takeRoom(tenant, key.length * CHARACTER_BYTES)) return null;
    const shelf: Shelf = this.#shelves.get(tenant) ?? { byKey: new Map(), unused: new Map() };
    this.#shelves.set(tenant, shelf);
    this.#lastId += 1;
    const grammar: Grammar = new Grammar({
      id: this.#lastId,
      tenant,
      model,
      source,
      workers: this.#workers,
      deadlines: this.#deadlines,
      onUsed: () => shelf.unused.delete(grammar),
      onUnused: () => {
        shelf.unused.set(grammar, key);
        if (grammar.failed) this.#forget(tenant, shelf, grammar);
        else this.#trim(tenant, MAX_UNUSED);
      },
    });
    shelf.byKey.set(key, grammar);
    return grammar;
  }

  /** Counts a source if it has room. Makes room from the tenant's unused grammars, and from other tenants' only when the shared memory is full. */
  #takeRoom(tenant: string, bytes: number): boolean {
    if (this.#sources.enter(tenant, bytes)) return true;
    this.#trim(tenant, 0);
    const isFull = this.#sources.total + bytes > this.#sourceBytes;
    if (isFull) for (const other of this.#shelves.keys()) this.#trim(other, 0);
    return this.#sources.enter(tenant, bytes);
  }

  /** Forgets the tenant's unused grammars, except the last `keptCount` ones. */
  #trim(tenant: string, keptCount: number): void {
    const shelf = this.#shelves.get(tenant);
    if (!shelf) return;
    for (const grammar of shelf.unused.keys()) {
      if (shelf.unused.size <= keptCount) return;
      this.#forget(tenant, shelf, grammar);
    }
  }

  #forget(tenant: string, shelf: Shelf, grammar: Grammar): void {
    const { byKey, unused } = shelf;
    const key = unused.get(grammar);
    unused.delete(grammar);
    if (key !== undefined) this.#sources.leave(tenant, key.length * CHARACTER_BYTES);
    grammar.forget();
    // The key of a failed grammar may belong to its replacement.
    if (key !== undefined && byKey.get(key) === grammar) byKey.delete(key);
    // The tenant may have a new shelf by now: a failed grammar can outlast the other grammars of its shelf.
    if (byKey.size === 0 && this.#shelves.get(tenant) === shelf) this.#shelves.delete(tenant);
  }
}
