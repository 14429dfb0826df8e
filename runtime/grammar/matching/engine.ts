import type { CompiledGrammar, GrammarCompiler } from '@mlc-ai/web-xgrammar';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { Answer, Reply, Request } from '../messages.ts';
import { GrammarError } from '../translate/error.ts';
import { translate } from '../translate/source.ts';
import type { Vocabulary } from '../vocabulary.ts';
import { type Library, loadLibrary } from './library.ts';
import { TokenMatcher } from './token-matcher.ts';

interface Model {
  readonly vocabulary: Vocabulary;
  readonly compiler: GrammarCompiler;
}

interface Compiled {
  readonly handle: CompiledGrammar;
  readonly vocabulary: Vocabulary;
}

/** Compiled grammars and matchers of one worker. Everything in it is lost together. */
export class Engine {
  readonly #library: Library;
  readonly #models = new Map<number, Model>();
  readonly #grammars = new Map<number, Compiled>();
  readonly #matchers = new Map<number, TokenMatcher>();

  static async load(memoryBytes: number): Promise<Engine> {
    return new Engine(await loadLibrary(memoryBytes));
  }

  private constructor(library: Library) {
    this.#library = library;
  }

  /** Never rejects. After `broken` nothing more may be asked. */
  async answer(request: Request): Promise<Reply> {
    try {
      const val = await this.#do(request);
      return this.#library.overrun() ? this.#broken() : { tag: 'ok', val };
    } catch (error) {
      if (error instanceof GrammarError) return { tag: 'err', val: handlerError(error.tag, error.message) };
      return this.#broken(error);
    }
  }

  async #do(request: Request): Promise<Answer> {
    switch (request.kind) {
      case 'vocabulary':
        return this.#learn(request.vocabulary);
      case 'compile':
        return this.#compile(request);
      case 'open':
        return this.#open(request);
      case 'accept':
        return this.#matcher(request.matcher).accept(request.tokens);
      case 'mask':
        return this.#matcher(request.matcher).mask();
      case 'status':
        return this.#matcher(request.matcher).status();
      case 'rollback':
        return this.#matcher(request.matcher).rollback(request.tokens);
      case 'forget':
        this.#grammars.get(request.grammar)?.handle.dispose();
        this.#grammars.delete(request.grammar);
        return undefined;
      case 'close':
        this.#matchers.get(request.matcher)?.dispose();
        this.#matchers.delete(request.matcher);
        return undefined;
    }
  }

  async #learn(vocabulary: Vocabulary): Promise<undefined> {
    const { bytes, offsets, size, eos } = vocabulary;
    const { TokenizerInfo, GrammarCompiler } = this.#library.xgrammar;
    const tokens = Array.from({ length: size }, (_, id) => bytes.subarray(offsets[id], offsets[id + 1]));
    // One token more than the model has, which ends a text too: so it can be told even for models without such a token whether a text may end.
    tokens.push(new Uint8Array(new SharedArrayBuffer(0)));
    const info = await TokenizerInfo.createTokenizerInfo(asStrings(tokens), 'raw', false, size + 1, [...eos, size]);
    const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
    this.#models.set(vocabulary.id, { vocabulary, compiler });
  }

  async #compile({ grammar, vocabulary, source }: Request & { kind: 'compile' }): Promise<undefined> {
    const model = this.#models.get(vocabulary);
    if (!model) throw new Error(`vocabulary ${vocabulary} is not known`);
    const parsed = await this.#library.xgrammar.Grammar.fromEBNF(translate(source));
    const handle = await model.compiler.compileGrammar(parsed);
    parsed.dispose();
    this.#grammars.set(grammar, { handle, vocabulary: model.vocabulary });
  }

  async #open({ matcher, grammar, tokens }: Request & { kind: 'open' }): Promise<undefined> {
    const compiled = this.#grammars.get(grammar);
    if (!compiled) throw new Error(`grammar ${grammar} is not known`);
    const handle = await this.#library.xgrammar.GrammarMatcher.createGrammarMatcher(compiled.handle);
    const opened = new TokenMatcher(handle, compiled.vocabulary);
    if (!opened.accept(tokens)) throw new Error('tokens that were accepted before are refused');
    this.#matchers.set(matcher, opened);
  }

  #matcher(id: number): TokenMatcher {
    const matcher = this.#matchers.get(id);
    if (!matcher) throw new Error(`matcher ${id} is not known`);
    return matcher;
  }

  #broken(error?: unknown): Reply {
    const complaint = this.#library.complaint();
    if (
      complaint === '' &&
      (error === undefined || error instanceof WebAssembly.RuntimeError || error instanceof RangeError)
    ) {
      return {
        tag: 'broken',
        val: handlerError('limit-exceeded', 'the grammar takes too much memory; use a smaller one'),
      };
    }
    const cause = complaint || (error instanceof Error ? error.message : String(error));
    return { tag: 'broken', val: handlerError('internal', `the grammar could not be matched: ${cause}`) };
  }
}

/** The library's declaration says strings; for bytes that are no UTF-8 its binding takes byte arrays as well. */
function asStrings(tokens: readonly Uint8Array[]): string[] {
  return tokens as readonly unknown[] as string[];
}
