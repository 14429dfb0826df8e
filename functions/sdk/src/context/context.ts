import { checkCount, InferletError } from '../errors.ts';
import { type Claim, type GenerateOptions, Generation } from '../generate/generation.ts';
import type { Distribution } from '../generate/samplers.ts';
import { allocate, attempt, inputText, outputText, Queue, settle } from '../raw.ts';
import { type ChatMessage, type ChatOptions, chatTokens } from './chat.ts';
import type { KvFile } from './files.ts';
import { detokenize, type ModelInfo, model, specialTokens, tokenize, tokenizeContinuation } from './models.ts';
import { nothingToBegin, Sequence, Snapshot, savedIn } from './sequence.ts';
import { answerOpening, Thinking, type ThinkOptions } from './thoughts.ts';
import { childrenOf, type Trie, treeMask, trieOf } from './trie.ts';

export type { ChatMessage, ChatOptions, ToolCall } from './chat.ts';

/** @internal The sequence of a context, for library code outside the class. Throws when the context is released or busy. */
export let sequenceOf: (context: Context) => Sequence;

/** @internal Ends the computation of a context's text for good, even when the context is busy or released. */
export let halt: (context: Context) => void;

/** Options of a new context. */
export interface ContextOptions {
  /** One of the models granted to the function; the function's default model if omitted. */
  readonly model?: string;
  /** Begin the text with the model's begin-of-text token, if the model has one; true by default. */
  readonly bos?: boolean;
  /** Calls of higher priority go first within a batch; 0 by default. The platform clamps the value. */
  readonly priority?: number;
  /** A low-rank adapter of the model (see `adapter.listAdapters` of the raw layer); the device computes the whole text with it. */
  readonly adapter?: string;
}

/** Options for filling a context. */
export interface FillOptions {
  /** Parse special tokens written in the text (never set this for text that a user wrote). */
  readonly special?: boolean;
  /** Name of the input's field that has the text, for the error about an empty text that the model cannot continue. */
  readonly field?: string;
}

/** Options for saving a context. */
export interface SaveOptions {
  /** The name survives a restart of the model's GPU host. By default, the value of `durable`. */
  readonly persistent?: boolean;
  /** The name is found also while the GPU host is away, and after its loss. Needs a platform with shared storage; false by default. */
  readonly durable?: boolean;
}

/** Options for opening a saved context. */
export interface OpenOptions extends ContextOptions {
  /**
   * Ids of the saved tokens (`tokens` of the saved context). With them, the opened context behaves like any other. Without them, its text
   * cannot be read, cut or turned into a chat; it can only be continued at the following positions.
   */
  readonly tokens?: ArrayLike<number>;
}

/**
 * A text and its keys and values in the model's memory. Computed tokens stay computed: filling, forking, cutting and chatting compute new
 * tokens only. Release a context with `using` or {@link release}; the platform frees the remaining contexts when the inferlet ends.
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
  /** @internal For forks, which share pages. */
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
    halt = (context) => context.#sequence.queue.stop();
  }

  /**
   * Opens a context that {@link save} stored under a name. Its tokens are computed already and shared copy-on-write. Without `tokens`, fill
   * in some text before generating. Throws `not-found` when no context has this name.
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
   * A context over the tokens of KV files, in the order of `files` and at their own positions; new tokens follow the largest position. The
   * context shares the files' pages copy-on-write. The files' texts do not attend to each other. Fill in some text before generating.
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
      // Queues are not ordered with each other: the pages must be shared before the caller may close the files.
      await settle(sequence.queue.synchronize());
    } catch (error) {
      sequence.release();
      throw error;
    }
    return new Context(options, sequence);
  }

  /** Removes a name that {@link save} stored. Contexts opened from it stay valid. Throws `not-found` when there is no such name. */
  static async remove(name: string, options: Pick<ContextOptions, 'model'> = {}): Promise<void> {
    using queue = new Queue(model(options.model).name);
    await settle(allocate.unexport(queue, name));
  }

  get model(): ModelInfo {
    return this.#sequence.model;
  }

  /** Ids of all tokens, special tokens included. For an opened context, only the known ids. */
  get tokens(): readonly number[] {
    return this.#sequence.tokens;
  }

  /**
   * One past the position of the last token. In most contexts this is the number of tokens, those with unknown ids included. It differs if the
   * positions of opened tokens have gaps or repeat, which can happen with several KV files.
   */
  get length(): number {
    return this.#sequence.length;
  }

  /** The text so far, without special tokens. For an opened context, only the text of the known tokens. */
  get text(): string {
    return detokenize(
      this.tokens.filter((token) => token >= 0),
      { model: this.model.name },
    );
  }

  /** Forward passes of the model that included this context, so far. */
  get forwardCalls(): number {
    return this.#sequence.forwardCalls;
  }

  /**
   * Appends text or token ids. The device computes them at the next {@link generate}, {@link fork} or {@link flush}. Throws
   * `context-overflow` when they do not fit the model's context, and `invalid-argument` for a token id that the model does not have.
   * With `field`, also throws `invalid-argument`, with the name of the field, when the context stays empty and the model has no token that begins
   * a text. Without it, the next {@link generate} throws then.
   *
   * @example
   * ctx.fill(prompt, { field: 'prompt' });
   */
  fill(content: string | ArrayLike<number>, options: FillOptions = {}): this {
    this.#check();
    const { field } = options;
    if (field !== undefined && content.length === 0 && this.length === 0) {
      const { name } = this.model;
      if (specialTokens(name).bos === null) throw nothingToBegin(`"${field}"`, name);
    }
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
    const needsNoBos = this.length > 0 || bos === null || tokens[0] === bos || this.#options.bos === false;
    this.#sequence.append(needsNoBos ? tokens : [bos, ...tokens]);
    return this;
  }

  /**
   * Sets the context to the chat `messages`, rendered by the model's chat template and ready for the assistant's answer. For the next turn,
   * call it again with the longer list; the common prefix is not computed again. Special tokens written in a message are plain text and
   * cannot end a turn. Throws `unsupported` when the model has no template.
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
   * Continues the text. The device computes nothing before the result is iterated or collected. By default decoding is greedy, and the
   * device decodes ahead without waiting for the inferlet; the inferlet still receives every token.
   */
  generate<T = string>(options: GenerateOptions<T> = {}): Generation<T> {
    this.#check();
    return new Generation<T>(this.#sequence, options, (generation) => {
      if (generation) this.#check();
      this.#claim = generation;
    });
  }

  /**
   * Lets the model write a thought before its answer, and ends the thought, after `maxTokens` tokens at the latest. {@link generate} then writes the
   * answer, with its own constraint, stop strings and limit. If the model has no thoughts, or its text begins without one, the context is as before;
   * the next `generate` then repeats the first tokens of that text if `sampler` is greedy or has the same seed.
   *
   * @example
   * const thinking = ctx.chat(messages, { effort: 'high' }).think({ maxTokens: 512 });
   * for await (const piece of thinking) await sendJson({ thought: piece });
   * const { text } = await ctx.generate({ constraint: typed(answer) }).collect();
   */
  think(options: ThinkOptions = {}): Thinking {
    this.#check();
    if (options.maxTokens !== undefined) checkCount('maxTokens', options.maxTokens, 0);
    return new Thinking(this, options);
  }

  /**
   * Appends the beginning of an answer, which {@link generate} continues. No thought precedes it: a thought that the prompt opens is ended first, in
   * the template's own form. Throws `context-overflow` when the text does not fit the model's context.
   *
   * @example
   * ctx.chat(messages).beginAnswer('{"name": "');
   */
  beginAnswer(text: string): this {
    return this.fill(answerOpening(this), { special: true }).fill(text);
  }

  /**
   * The most probable next tokens. Leaves the context unchanged.
   * @param topK number of tokens, at most 256
   */
  async nextDistribution(topK = 256): Promise<Distribution> {
    this.#check();
    if (this.length === 0) throw new InferletError('invalid-argument', 'The context is empty: fill it first.');
    return this.#sequence.peek(topK);
  }

  /** Computes all filled tokens but the last, so that a later {@link generate} or {@link fork} begins at once. */
  async flush(): Promise<void> {
    this.#check();
    await this.#sequence.prefill();
  }

  /**
   * Selects the most probable of several texts, by the probability of each whole text; see `select`. Leaves the context unchanged.
   */
  async select(choices: readonly string[], options: SelectOptions = {}): Promise<Selection> {
    this.#check();
    if (this.length === 0) throw new InferletError('invalid-argument', 'The context is empty: fill it first.');
    return selectOn(this.#sequence, choices, options);
  }

  /**
   * Appends the most probable of several texts and returns it.
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
   * Creates an independent copy of the context. Original and copy share the pages of their common prefix, copy-on-write.
   *
   * @example
   * const forks = await Promise.all([1, 2, 3].map(() => ctx.fork()));
   */
  async fork(): Promise<Context> {
    this.#check();
    return new Context(this.#options, await this.#sequence.fork());
  }

  /**
   * Computes all tokens and stores their keys and values, without the text, under a name. All of the tenant's inferlets can open the name until
   * {@link remove}. A `persistent` name survives a restart of the model's GPU host. A `durable` name also survives the loss of that host (see
   * {@link SavedContext.makeDurable}); if this last step fails, the name stays saved. Throws `invalid-argument` when the name is taken or invalid
   * (valid: 1 to 128 letters, digits, `.`, `_`, `-`, `/`).
   */
  async save(name: string, options: SaveOptions = {}): Promise<void> {
    this.#check();
    const { queue } = this.#sequence;
    await this.#sequence.save(name, options.persistent ?? options.durable ?? false);
    if (options.durable) await settle(allocate.makeDurable(queue, name));
  }

  /**
   * Appends the computed tokens of another context of the same model. The device rotates their keys to the following positions and computes
   * only pending tokens. The other text does not attend to this one, so the continuation differs slightly from computing both in a row (Gim
   * et al., Prompt Cache, 2024). Needs a model whose keys can be rotated again (`unsupported` otherwise). Refuses a context that was opened
   * without its tokens, or whose window has slid. This context is busy until the append ends.
   * @param options.from index in `other` of the first token to append; 0 by default, or 1 to skip a begin-of-text token if this context has text
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
    // `abandon` has nothing to do: `Sequence.join` itself throws when the context is released meanwhile.
    this.#claim = { abandon: () => undefined };
    try {
      await this.#sequence.join(sequence, from);
      return this;
    } finally {
      this.#claim = undefined;
    }
  }

  /**
   * Captures the context's state. {@link restore} returns to that state any number of times. Context and snapshot share pages copy-on-write.
   *
   * @example
   * using before = await ctx.snapshot();
   * do ctx.restore(before); while (!fits((await ctx.generate({ sampler }).collect()).text));
   */
  async snapshot(): Promise<Snapshot> {
    this.#check();
    return new Snapshot(this.#sequence, await this.#sequence.snapshot());
  }

  /** Returns the context to one of its own snapshots. Computes nothing again. */
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
    checkCount('length', length, 0);
    this.#sequence.truncate(length);
    return this;
  }

  /** Frees the context's memory. The context cannot be used afterwards. */
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
  'The context is busy: before another call, read its generation to the end, stop() that generation, or await the running append().';

/** Options for comparing choices. */
export interface SelectOptions {
  /** Compare the average over a choice's tokens, so that long choices have no disadvantage; false by default. */
  readonly normalize?: boolean;
}

/** The result of a selection. */
export interface Selection {
  /** The most probable choice. */
  readonly choice: string;
  readonly index: number;
  /** Natural logarithm of each choice's probability, in the order of the choices; with `normalize`, the average over the choice's tokens. */
  readonly logProbabilities: readonly number[];
}

/**
 * Selects the most probable of several texts, by the probability of each whole text (teacher forcing). One pass over the tree of their
 * tokens computes all texts, and each common prefix once (as in SpecInfer, Miao et al., 2024). Leaves the context unchanged.
 *
 * @example
 * const { choice } = await select(ctx.fill('The sky is'), [' blue', ' green', ' loud']);
 */
export const select = (context: Context, choices: readonly string[], options: SelectOptions = {}): Promise<Selection> =>
  context.select(choices, options);

/** @internal {@link select} on a sequence. */
export async function selectOn(
  sequence: Sequence,
  choices: readonly string[],
  { normalize = false }: SelectOptions,
): Promise<Selection> {
  const lists = choices.map((choice) => tokenizeContinuation(choice, { model: sequence.model.name }));
  if (lists.length === 0) throw new InferletError('invalid-argument', 'There is nothing to choose from.');
  const empty = lists.findIndex((tokens) => tokens.length === 0);
  if (empty >= 0) throw new InferletError('invalid-argument', `Choice ${empty} is empty.`);
  const trie = trieOf(lists);
  const nodeScores = await tokenScores(sequence, trie);
  const logProbabilities = trie.paths.map((path) => {
    const sum = path.reduce((total, node) => total + (nodeScores[node] as number), 0);
    return normalize ? sum / path.length : sum;
  });
  const index = logProbabilities.indexOf(Math.max(...logProbabilities));
  return { choice: choices[index] as string, index, logProbabilities };
}

/** Log-probability of each node's token after the context and the node's ancestors. Takes one pass, and caches no node. */
async function tokenScores(sequence: Sequence, { tokens, parents, depths }: Trie): Promise<number[]> {
  const { queue, cache } = sequence;
  sequence.checkRoom(depths.reduce((deepest, depth) => Math.max(deepest, depth), 0));
  // The pass computes the nodes with children, because a node's state gives the probabilities of its children. It leaves out the leaves.
  // Node -1, the root, is the first key of `children`; its token is the last token of the context.
  const children = childrenOf(parents);
  const inner = [...children.keys()].slice(1);
  const rows = new Map([...children.keys()].map((node, row) => [node, row]));
  const rowOf = (node: number): number => rows.get(node) as number;
  // The root is row 0 of the pass, and `inner[i]` is row i + 1. `treeMask` takes i for `inner[i]`, and -1 for the root.
  const parentRows = inner.map((node) => rowOf(parents[node] as number) - 1);

  // `prefill` computes all pending tokens but the last. If none is pending, `firstPending(true)` makes the last token pending again.
  // Either way, `start` is the index of the last token, and `last` is its position.
  const prefill = sequence.prefill();
  const start = sequence.firstPending(true);
  const count = inner.length + 1;
  const embeds = attempt(() => allocate.allocateEmbeds(queue, 2 * count));
  const inputs = embeds.slice(0, count);
  const states = embeds.slice(count);
  const last = sequence.base + start;
  inputText.embedText(
    queue,
    [sequence.tokens[start] as number, ...inner.map((node) => tokens[node] as number)],
    [last, ...inner.map((node) => last + (depths[node] as number))],
    inputs,
  );
  sequence.pass(cache.access(0).inPages, inputs, [], states, treeMask(cache.filled, parentRows));
  const scores: number[] = [];
  const requests = [...children].map(async ([parent, nodes]) => {
    const candidates = Uint32Array.from(nodes, (node) => tokens[node] as number);
    const answers = await sequence.settle(
      outputText.logProbabilities(queue, states[rowOf(parent)] as number, candidates),
    );
    for (const [i, node] of nodes.entries()) scores[node] = answers[i] as number;
  });
  // The queue frees the embeds after the calls above have read them, since it keeps their order.
  allocate.freeEmbeds(queue, embeds);
  await Promise.all([prefill, ...requests]);
  return scores;
}
