import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { CompiledGrammar, type Deadlines, Grammar } from './compiled.ts';
import type { GrammarSource } from './translate/source.ts';
import { Workers } from './workers.ts';

export type { CompiledGrammar } from './compiled.ts';
export type { Matcher } from './matcher.ts';
export type { MatchStatus } from './messages.ts';
export type { GrammarSource } from './translate/source.ts';

/** The model whose tokens a grammar is matched in. */
export interface GrammarModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
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

/**
 * Compiles grammars and matches texts of tokens against them, in worker threads: sources are strangers' input, which may take long and much memory.
 * Each tenant has a worker of its own. One that overruns its deadline or its memory is ended; the grammar that did it answers an error from then
 * on, and everything else that the worker held is made again when it is asked next.
 */
export class GrammarService {
  readonly #workers: Workers;
  readonly #deadlines: Deadlines;
  /** By tenant, then by model and source, the ones used last at the end. */
  readonly #grammars = new Map<string, Map<string, Grammar>>();
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

  /** Starts compiling; failures are told by `ready` and by the matchers. The same source of a tenant is compiled once. */
  compile(tenant: string, model: GrammarModel, source: GrammarSource): CompiledGrammar {
    const grammars = this.#grammars.get(tenant) ?? new Map<string, Grammar>();
    this.#grammars.set(tenant, grammars);
    const key = `${this.#tokenizer(model.tokenizer)} ${source.tag} ${source.tag === 'json' ? '' : source.val}`;
    let grammar = grammars.get(key);
    if (!grammar || grammar.failed) {
      this.#lastId += 1;
      grammar = new Grammar({
        id: this.#lastId,
        tenant,
        model,
        source,
        workers: this.#workers,
        deadlines: this.#deadlines,
        onUnused: () => this.#trim(tenant, MAX_UNUSED),
      });
    }
    grammars.delete(key);
    grammars.set(key, grammar);
    return new CompiledGrammar(grammar);
  }

  /** Ends all workers. Calls then answer `closed`. */
  close(): Promise<void> {
    this.#grammars.clear();
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

  /** Forgets the tenant's unused grammars but the last `kept` ones. */
  #trim(tenant: string, kept: number): void {
    const grammars = this.#grammars.get(tenant);
    if (!grammars) return;
    const unused = [...grammars].filter(([, grammar]) => grammar.unused);
    for (const [index, [key, grammar]] of unused.entries()) {
      if (index >= unused.length - kept && !grammar.failed) continue;
      grammars.delete(key);
      grammar.forget();
    }
    if (grammars.size === 0) this.#grammars.delete(tenant);
  }
}
