import { type ChatMessage, type ChatOptions, chatTokens } from './chat.ts';
import { InferletError } from './errors.ts';
import type { KvFile } from './files.ts';
import { type Claim, Generation } from './generation.ts';
import type { GenerateOptions } from './generation-options.ts';
import { detokenize, type ModelInfo, model, specialTokens, tokenize, tokenizeContinuation } from './models.ts';
import { allocate, attempt, Queue, settle } from './raw.ts';
import type { Distribution } from './samplers.ts';
import { type Selection, type SelectOptions, selectOn } from './select.ts';
import { Sequence } from './sequence.ts';
import { Snapshot, savedIn } from './snapshot.ts';

export type { ChatMessage, ChatOptions, ToolCall } from './chat.ts';

/** @internal The sequence of a context that is neither released nor busy, for what works on it beside the class. */
export let sequenceOf: (context: Context) => Sequence;

/** What a context is made on. */
export interface ContextOptions {
  /** One of the models granted to the function; its default without it. */
  readonly model?: string;
  /** Begin text with the model's begin-of-text token, if it has one; true by default. */
  readonly bos?: boolean;
  /** Higher goes first within a batch; 0 by default; the platform clamps it. */
  readonly priority?: number;
  /** A low-rank adapter of the model's (`adapter.listAdapters` of the raw layer), with which all of the text is computed. */
  readonly adapter?: string;
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
 * await ctx.generate({ maxTokens: 64 }).pipe();
 */
export class Context implements Disposable {
  readonly #sequence: Sequence;
  readonly #options: ContextOptions;
  #claim: Claim | undefined;
  #released = false;

  constructor(options?: ContextOptions);
  /** @internal A fork's, over pages that it shares. */
  constructor(options: ContextOptions, sequence: Sequence);
  constructor(options: ContextOptions = {}, sequence?: Sequence) {
    this.#options = options;
    this.#sequence = sequence ?? new Sequence(model(options.model), options);
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
    const sequence = new Sequence(model(options.model), options);
    try {
      await sequence.open(name, options.tokens);
    } catch (error) {
      sequence.release();
      throw error;
    }
    return new Context(options, sequence);
  }

  /**
   * A context over what KV files hold, in their order, at the positions that it has there; what follows comes behind the largest of them. Their
   * memory is shared, copy-on-write, and their texts know nothing of each other. As with an opened context without tokens, fill in
   * something before generating.
   */
  static async over(files: readonly KvFile[], options: ContextOptions = {}): Promise<Context> {
    const sequence = new Sequence(model(options.model), options);
    const { cache } = sequence;
    try {
      for (const file of files) {
        const pages = attempt(() => allocate.sharePages(sequence.queue, file.raw.pages()));
        const all = [...cache.filledPages, ...pages];
        cache.adopt(all, cache.filled + file.length, Math.max(sequence.base, file.nextPosition));
      }
      // Between queues there is no order: the pages must be shared before their files may be closed.
      await settle(sequence.queue.synchronize());
    } catch (error) {
      sequence.release();
      throw error;
    }
    return new Context(options, sequence);
  }

  /** Removes what {@link save} kept under a name; who has opened it keeps it. Throws `not-found` when there is no such name. */
  static async remove(name: string, options: Pick<ContextOptions, 'model'> = {}): Promise<void> {
    using queue = new Queue(model(options.model).name);
    await settle(allocate.unexport(queue, name));
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
    return detokenize(
      this.tokens.filter((token) => token >= 0),
      { model: this.model.name },
    );
  }

  /** Passes of the model through the device that this context was part of so far. */
  get forwardCalls(): number {
    return this.#sequence.forwardCalls;
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
   * grown list for the next turn: what the two have in common is not computed again. Special tokens that are written in a message are text
   * like any other: no turn ends with them. Throws `unsupported` when the model has no template.
   *
   * @example
   * const messages = [{ role: 'user', content: 'What is the capital of France?' }];
   * const answer = await ctx.chat(messages).generate({ maxTokens: 64 }).collect();
   * messages.push({ role: 'assistant', content: answer.text }, { role: 'user', content: 'And of Spain?' });
   */
  chat(messages: readonly ChatMessage[], options: ChatOptions = {}): this {
    this.#check();
    this.#sequence.replace(chatTokens(this.model.name, messages, options));
    return this;
  }

  /**
   * Continues the text. Nothing is computed before the result is iterated or collected. By default tokens are picked greedily and the
   * device decodes ahead, without waiting for the inferlet; each token still passes by here.
   */
  generate<T = string>(options: GenerateOptions<T> = {}): Generation<T> {
    this.#check();
    return new Generation<T>(this.#sequence, options, (generation) => {
      if (generation) this.#check();
      this.#claim = generation;
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
   * Which of several texts the model would rather say next, by the probability of each as a whole; the context stays as it is. See `select`.
   */
  async select(choices: readonly string[], options: SelectOptions = {}): Promise<Selection> {
    this.#check();
    if (this.length === 0) throw new InferletError('invalid-argument', 'The context is empty: fill it first.');
    return selectOn(this.#sequence, choices, options);
  }

  /**
   * Appends the one of several texts that the model would rather say, and answers it.
   *
   * @example
   * const mood = await ctx.fill('The dog was').choose([' happy', ' sad']);
   */
  async choose(choices: readonly string[], options: SelectOptions = {}): Promise<string> {
    const { choice } = await this.select(choices, options);
    this.fill(choice);
    return choice;
  }

  /**
   * A context that goes its own way from here. Both share the memory of what they have in common, copy-on-write.
   *
   * @example
   * const forks = await Promise.all([1, 2, 3].map(() => ctx.fork()));
   */
  async fork(): Promise<Context> {
    this.#check();
    return new Context(this.#options, await this.#sequence.fork());
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

  /**
   * Appends another context of the same model with what was computed of it, at the positions that follow (keys are rotated to them): nothing is
   * computed again but what is pending. The other's text knows nothing of this one's, so what follows is not quite what computing both in a row
   * would give (Gim et al., Prompt Cache, 2024). Needs keys that can be rotated anew (`unsupported` otherwise), and all of the other's tokens:
   * not what was opened without them, or has slid. Nothing else can be done with this context meanwhile.
   * @param options.from the other's first token that is taken; by default all but its begin-of-text token, if this context has text
   *
   * @example
   * using rules = await Context.open('rules', { tokens });
   * await ctx.append(rules);
   */
  async append(other: Context, options: { readonly from?: number } = {}): Promise<this> {
    this.#check();
    const sequence = sequenceOf(other);
    if (sequence === this.#sequence || sequence.model.name !== this.model.name) {
      throw new InferletError('invalid-argument', 'Only another context of the same model can be appended.');
    }
    const { bos } = specialTokens(this.model.name);
    const { from = this.length > 0 && other.tokens[0] === bos ? 1 : 0 } = options;
    if (!(Number.isInteger(from) && from >= 0 && from <= other.tokens.length)) {
      const text = `from must be the index of one of the other's ${other.tokens.length} tokens, not ${from}.`;
      throw new InferletError('invalid-argument', text);
    }
    // Whoever releases it is heard of by what it waits for.
    this.#claim = { abandon: () => undefined };
    try {
      await this.#sequence.join(sequence, from);
      return this;
    } finally {
      this.#claim = undefined;
    }
  }

  /**
   * What the context is now, to come back to as often as needed. What both have in common is shared, copy-on-write.
   *
   * @example
   * using before = await ctx.snapshot();
   * do ctx.restore(before); while (!fits((await ctx.generate({ sampler }).collect()).text));
   */
  async snapshot(): Promise<Snapshot> {
    this.#check();
    return new Snapshot(this.#sequence, await this.#sequence.snapshot());
  }

  /** Makes the context what it was at a snapshot of its own; nothing is computed again. */
  restore(snapshot: Snapshot): this {
    this.#check();
    const { sequence, saved } = savedIn(snapshot);
    if (sequence !== this.#sequence || !saved) {
      const text = saved
        ? 'This is the snapshot of another context: fork that one instead.'
        : 'The snapshot was released.';
      throw new InferletError('invalid-argument', text);
    }
    sequence.restore(saved);
    return this;
  }

  /** Drops all tokens from position `length` on. */
  truncate(length: number): this {
    this.#check();
    if (!(Number.isInteger(length) && length >= 0)) {
      throw new InferletError('invalid-argument', `length must be a whole number, 0 or more, not ${length}.`);
    }
    this.#sequence.truncate(length);
    return this;
  }

  /** Gives the memory back. The context cannot be used afterwards. */
  release(): void {
    if (this.#released) return;
    this.#claim?.abandon();
    this.#released = true;
    this.#sequence.release();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  #check(): void {
    if (this.#released) throw new InferletError('closed', 'The context was released.');
    if (this.#claim) throw new InferletError('invalid-argument', BUSY);
  }
}

const BUSY =
  'The context is busy: go through its generation, or stop() that, or await what is appended to it, before anything else.';
