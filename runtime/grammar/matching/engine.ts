import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { Answer, Reply, Request } from '../messages.ts';
import { GrammarError } from '../translate/expression.ts';
import { translate } from '../translate/source.ts';
import type { Vocabulary } from '../vocabulary.ts';
import { buildAutomaton } from './automaton.ts';
import { MAX_PLACE_BYTES, MemoryBound, Places } from './places.ts';
import { type Compiled, TokenMatcher } from './token-matcher.ts';
import { stringPlaces, TokenTree } from './token-tree.ts';

interface Model {
  readonly vocabulary: Vocabulary;
  readonly tree: TokenTree;
  readonly strings: Places;
}

/** The compiled grammars and the matchers of one worker thread. They are lost when the thread ends. */
export class Engine {
  readonly #models = new Map<number, Model>();
  readonly #grammars = new Map<number, Compiled>();
  readonly #matchers = new Map<number, TokenMatcher>();
  readonly #memory = new MemoryBound<Places>(MAX_PLACE_BYTES);

  answer(request: Request): Reply {
    try {
      return { tag: 'ok', val: this.#do(request) };
    } catch (error) {
      // A source that exceeds a limit can never compile: the caller's argument is invalid. Errors of matching keep their own tag.
      const compileTag = request.kind === 'compile' ? 'invalid-argument' : undefined;
      if (error instanceof GrammarError)
        return { tag: 'err', val: handlerError(compileTag ?? error.tag, error.message) };
      if (error instanceof RangeError) {
        const text = 'the grammar is nested too deep; use a simpler one';
        return { tag: 'err', val: handlerError(compileTag ?? 'limit-exceeded', text) };
      }
      const text = `the grammar could not be matched: ${error instanceof Error ? error.message : String(error)}`;
      return { tag: 'err', val: handlerError('internal', text) };
    }
  }

  #do(request: Request): Answer {
    switch (request.kind) {
      case 'vocabulary': {
        const { vocabulary } = request;
        const strings = stringPlaces(this.#memory);
        this.#models.set(vocabulary.id, { vocabulary, tree: new TokenTree(vocabulary), strings });
        return undefined;
      }
      case 'compile': {
        const model = this.#models.get(request.vocabulary);
        if (!model) throw new Error(`vocabulary ${request.vocabulary} is not known`);
        const grammar = translate(request.source);
        const { vocabulary, tree, strings } = model;
        const places = new Places(buildAutomaton(grammar), this.#memory, strings);
        const { check, isJson = false } = grammar;
        this.#grammars.set(request.grammar, { vocabulary, tree, places, check, isJson });
        return undefined;
      }
      case 'open': {
        const compiled = this.#grammars.get(request.grammar);
        if (!compiled) throw new Error(`grammar ${request.grammar} is not known`);
        const matcher = new TokenMatcher(compiled);
        if (!matcher.accept(request.tokens)) throw new Error('tokens that were accepted before are refused');
        this.#matchers.set(request.matcher, matcher);
        return undefined;
      }
      case 'accept':
        return this.#matcher(request.matcher).accept(request.tokens);
      case 'mask':
        return this.#matcher(request.matcher).mask();
      case 'masks':
        return this.#matcher(request.matcher).masks(request.guesses);
      case 'status':
        return this.#matcher(request.matcher).status();
      case 'forced':
        return this.#matcher(request.matcher).forced();
      case 'rollback':
        return this.#matcher(request.matcher).rollback(request.tokens);
      case 'forget': {
        const compiled = this.#grammars.get(request.grammar);
        if (compiled) this.#memory.forget(compiled.places);
        this.#grammars.delete(request.grammar);
        return undefined;
      }
      case 'close':
        this.#matchers.delete(request.matcher);
        return undefined;
    }
  }

  #matcher(id: number): TokenMatcher {
    const matcher = this.#matchers.get(id);
    if (!matcher) throw new Error(`matcher ${id} is not known`);
    return matcher;
  }
}
