import type { ChatMessage } from 'pie:inferlet/tokenize@0.1.0';
import { InferletError } from './errors.ts';
import { type GenerateOptions, Generation } from './generation.ts';
import { detokenize, type ModelInfo, model, specialTokens, tokenize, tokenizeContinuation } from './models.ts';
import { attempt, tokenize as text } from './raw.ts';
import type { Distribution } from './samplers.ts';
import { Sequence } from './sequence.ts';

export type { ChatMessage } from 'pie:inferlet/tokenize@0.1.0';

/** @internal The sequence of a context that is neither released nor generating, for what works on it beside the class. */
export let sequenceOf: (context: Context) => Sequence;

/** What a context is made on. */
export interface ContextOptions {
  /** One of the models granted to the function; its default without it. */
  readonly model?: string;
  /** Begin text with the model's begin-of-text token, if it has one; true by default. */
  readonly bos?: boolean;
  /** Higher goes first within a batch; 0 by default; the platform clamps it. */
  readonly priority?: number;
}

/** How a saved context is opened. */
export interface OpenOptions extends ContextOptions {
  /**
   * Ids of the tokens that were saved, if they are known (`tokens` of the context that was saved): with them it is a context like any other.
   * Without them its text cannot be read, cut or made a chat of; it can be gone on with, at the positions that follow.
   */
  readonly tokens?: ArrayLike<number>;
}

/**
 * A text and its place in the model's memory. What was computed once stays computed: filling more, forking, cutting and chatting pay
 * only for tokens that are new. Give it back with `using` or {@link release}; the platform takes the rest back when the inferlet ends.
 *
 * @example
 * using ctx = new Context();
 * ctx.fill('Once upon a time');
 * for await (const text of ctx.generate({ maxTokens: 64 })) await send(text);
 */
export class Context implements Disposable {
  readonly #sequence: Sequence;
  readonly #options: ContextOptions;
  #generation: Generation | undefined;
  #released = false;

  constructor(options?: ContextOptions);
  /** @internal A fork's, over pages that it shares. */
  constructor(options: ContextOptions, sequence: Sequence);
  constructor(options: ContextOptions = {}, sequence?: Sequence) {
    this.#options = options;
    this.#sequence = sequence ?? new Sequence(model(options.model), options.priority ?? 0);
  }

  static {
    sequenceOf = (context) => {
      context.#check();
      return context.#sequence;
    };
  }

  /**
   * A context over what {@link save} kept under a name, computed already, shared copy-on-write. Fill in something before generating, unless
   * `tokens` are given. Throws `not-found` when there is no such name.
   *
   * @example
   * using ctx = await Context.open('rules');
   * const { text } = await ctx.fill(question).generate().collect();
   */
  static async open(name: string, options: OpenOptions = {}): Promise<Context> {
    const sequence = new Sequence(model(options.model), options.priority ?? 0);
    try {
      await sequence.open(name, options.tokens);
    } catch (error) {
      sequence.release();
      throw error;
    }
    return new Context(options, sequence);
  }

  get model(): ModelInfo {
    return this.#sequence.model;
  }

  /** Ids of all tokens, special ones included; of an opened context those that are known. */
  get tokens(): readonly number[] {
    return this.#sequence.tokens;
  }

  /** Number of tokens, with those of an opened context that are not known. */
  get length(): number {
    return this.#sequence.length;
  }

  /** The text so far, without special tokens; of an opened context what is known of it. */
  get text(): string {
    return detokenize(this.tokens, { model: this.model.name });
  }

  /**
   * Appends text, or token ids as they are. It is computed when something needs it: the next {@link generate}, {@link fork} or {@link flush}.
   * Throws `context-overflow` when it does not fit the model's context and `invalid-argument` for a token id that the model does not have.
   * @param options.special recognise special tokens that are written in the text (never for text that a user wrote)
   */
  fill(content: string | ArrayLike<number>, options: { readonly special?: boolean } = {}): this {
    this.#check();
    if (typeof content !== 'string') {
      this.#sequence.append(content);
      return this;
    }
    const { name } = this.model;
    const { bos } = specialTokens(name);
    const how = { model: name, special: options.special ?? false };
    if (this.length > 0 && !(this.length === 1 && this.tokens[0] === bos)) {
      this.#sequence.append(tokenizeContinuation(content, how));
      return this;
    }
    const tokens = tokenize(content, how);
    const begins = this.length > 0 || bos === null || tokens[0] === bos || this.#options.bos === false;
    this.#sequence.append(begins ? tokens : [bos, ...tokens]);
    return this;
  }

  /**
   * Makes the context the chat `messages`, through the model's chat template, ready for the assistant's answer. Call it again with the
   * grown list for the next turn: what the two have in common is not computed again. Throws `unsupported` when the model has no template.
   *
   * @example
   * const messages = [{ role: 'user', content: 'What is the capital of France?' }];
   * const answer = await ctx.chat(messages).generate({ maxTokens: 64 }).collect();
   * messages.push({ role: 'assistant', content: answer.text }, { role: 'user', content: 'And of Spain?' });
   */
  chat(messages: readonly ChatMessage[], options: { readonly addGenerationPrompt?: boolean } = {}): this {
    this.#check();
    const { name } = this.model;
    const rendered = attempt(() => text.chatTemplate(name, messages, options.addGenerationPrompt ?? true));
    this.#sequence.replace(tokenize(rendered, { model: name, special: true }));
    return this;
  }

  /**
   * Continues the text. Nothing is computed before the result is iterated or collected. By default tokens are picked greedily and the
   * device decodes ahead, without waiting for the inferlet; each token still passes by here.
   */
  generate(options: GenerateOptions = {}): Generation {
    this.#check();
    return new Generation(this.#sequence, options, (generation) => {
      if (generation) this.#check();
      this.#generation = generation;
    });
  }

  /**
   * The most probable next tokens, without taking one.
   * @param topK how many, at most 256
   */
  async nextDistribution(topK = 256): Promise<Distribution> {
    this.#check();
    if (this.length === 0) throw new InferletError('invalid-argument', 'The context is empty: fill it first.');
    return this.#sequence.peek(topK);
  }

  /** Computes what was filled, all but the last token, so that a later {@link generate} or {@link fork} begins at once. */
  async flush(): Promise<void> {
    this.#check();
    await this.#sequence.prefill();
  }

  /**
   * A context that goes its own way from here. Both share the memory of what they have in common, copy-on-write.
   *
   * @example
   * const forks = await Promise.all([1, 2, 3].map(() => ctx.fork()));
   */
  async fork(): Promise<Context> {
    this.#check();
    return new Context(this.#options, await this.#sequence.fork(this.#options.priority ?? 0));
  }

  /**
   * Computes everything and keeps it under a name for all of the tenant's inferlets, until it is removed. `persistent` survives a restart
   * of the model's host. Only keys and values are kept, no text. Throws `invalid-argument` when the name is taken or is no name (1 to 128
   * characters of letters, digits, `.`, `_`, `-`, `/`). `allocate.unexport` of `@pie/inferlet/raw` removes one.
   */
  async save(name: string, options: { readonly persistent?: boolean } = {}): Promise<void> {
    this.#check();
    await this.#sequence.save(name, options.persistent ?? false);
  }

  /** Drops all tokens from position `length` on. */
  truncate(length: number): this {
    this.#check();
    this.#sequence.truncate(length);
    return this;
  }

  /** Gives the memory back. The context cannot be used afterwards. */
  release(): void {
    if (this.#released) return;
    this.#generation?.abandon();
    this.#released = true;
    this.#sequence.release();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  #check(): void {
    if (this.#released) throw new InferletError('closed', 'The context was released.');
    if (this.#generation) {
      throw new InferletError(
        'invalid-argument',
        'The context is generating: go through the generation, or stop() it, first.',
      );
    }
  }
}
