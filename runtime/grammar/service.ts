import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { GrammarAccount } from './account.ts';
import { CompiledGrammar, type Deadlines, Grammar } from './compiled.ts';
import { type GrammarSource, refuseSource } from './translate/source.ts';
import { Workers } from './workers.ts';

export { GrammarAccount } from './account.ts';
export type { CompiledGrammar } from './compiled.ts';
export type { Matcher } from './matcher.ts';
export type { MatchStatus } from './messages.ts';
export type { GrammarSource } from './translate/source.ts';

/** The model whose tokens a grammar is matched in. */
export interface GrammarModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Tokens that the model tells apart; masks have a bit for each. */
  readonly vocabularySize: number;
}

/** Each has a default. */
export interface GrammarOptions {
  /** Worker threads at once, one a tenant: 8. */
  readonly maxWorkers?: number;
  /** A worker that nobody uses for so long ends: 30 s. */
  readonly idleMs?: number;
  /** For compiling one grammar: 2 s. */
  readonly compileMs?: number;
  /** For one call of a matcher: 1 s. */
  readonly operationMs?: number;
  /** JavaScript heap of a worker, MiB: 384. */
  readonly heapMb?: number;
}

/** For a worker to start, and to read a vocabulary; on a loaded machine. */
const START_MS = 10_000;
/** Longest wait for a worker when all are busy. */
const PLACE_MS = 10_000;
/** Grammars of a tenant that stay compiled after nobody holds them. */
const MAX_UNUSED = 16;

/** Grammars of one tenant. */
interface Shelf {
  /** By model and source. */
  readonly all: Map<string, Grammar>;
  /** Those that nobody holds, the ones used last at the end. */
  readonly unused: Map<Grammar, string>;
}

/**
 * Compiles grammars and matches texts of tokens against them, in worker threads: sources are strangers' input, which may take long and much memory.
 * Each tenant has a worker of its own. One that overruns its deadline or its memory is ended; the grammar that did it answers an error from then
 * on, and everything else that the worker held is made again when it is asked next.
 */
export class GrammarService {
  readonly #workers: Workers;
  readonly #deadlines: Deadlines;
  /** By tenant. */
  readonly #shelves = new Map<string, Shelf>();
  readonly #tokenizers = new WeakMap<Tokenizer, number>();
  #lastId = 0;

  constructor(options: GrammarOptions = {}) {
    const { maxWorkers = 8, idleMs = 30_000, compileMs = 2000, operationMs = 1000, heapMb = 384 } = options;
    this.#deadlines = { compileMs, operationMs, startMs: START_MS };
    this.#workers = new Workers({
      maxWorkers,
      idleMs,
      heapMb,
      startMs: START_MS,
      placeMs: PLACE_MS,
      onEnd: (tenant) => this.#trim(tenant, 0),
    });
  }

  /** Worker threads that exist. */
  get workers(): number {
    return this.#workers.count;
  }

  /**
   * Starts compiling; failures are told by `ready` and by the matchers. The same source of a tenant is compiled once.
   *
   * @returns an error at once for a source that is too long, or when the account is at its bounds: then nothing of it is kept
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
    const key = `${this.#tokenizer(model.tokenizer)} ${model.vocabularySize} ${source.tag} ${text}`;
    const known = this.#shelves.get(tenant)?.all.get(key);
    const grammar = known && !known.failed ? known : this.#make(tenant, model, source, key);
    return ok(new CompiledGrammar(grammar, account, bytes));
  }

  /** Ends all workers. Calls then answer `closed`. */
  close(): Promise<void> {
    this.#shelves.clear();
    return this.#workers.close();
  }

  #tokenizer(tokenizer: Tokenizer): number {
    let id = this.#tokenizers.get(tokenizer);
    if (id === undefined) {
      this.#lastId += 1;
      id = this.#lastId;
      this.#tokenizers.set(tokenizer, id);
    }
    return id;
  }

  #make(tenant: string, model: GrammarModel, source: GrammarSource, key: string): Grammar {
    const shelf = this.#shelves.get(tenant) ?? { all: new Map(), unused: new Map() };
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
    shelf.all.set(key, grammar);
    return grammar;
  }

  /** Forgets the tenant's unused grammars but the last `kept` ones. */
  #trim(tenant: string, kept: number): void {
    const shelf = this.#shelves.get(tenant);
    if (!shelf) return;
    for (const grammar of shelf.unused.keys()) {
      if (shelf.unused.size <= kept) return;
      this.#forget(tenant, shelf, grammar);
    }
  }

  #forget(tenant: string, { all, unused }: Shelf, grammar: Grammar): void {
    const key = unused.get(grammar);
    unused.delete(grammar);
    grammar.forget();
    // A failed one may have been replaced.
    if (key !== undefined && all.get(key) === grammar) all.delete(key);
    if (all.size === 0) this.#shelves.delete(tenant);
  }
}
