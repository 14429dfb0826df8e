import type { Mask } from 'pie:inferlet/forward@0.1.0';
import type { Output, RunRequest, StepRequest, StepResult, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import type { ModelInfo } from 'pie:inferlet/runtime@0.1.0';
import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { ContextOverflowError, InferletError } from '../errors.ts';
import type { Distribution } from '../generate/samplers.ts';
import { adapter, allocate, attempt, forward, fused, inputText, outputText, Queue, Run, settle } from '../raw.ts';
import { Cache, type CacheState, UNKNOWN_BEGINNING } from './cache.ts';
import { specialTokens } from './models.ts';
import { commonPrefix, range } from './pages.ts';

/** Starts a fused call on a queue: `fused.step`, or a call of the same shape. */
export type StepCall = (queue: Queue, request: StepRequest) => Future<Outcome<StepResult>>;

/** Starts a run on a queue: the constructor of `fused.Run`, or a call of the same shape. */
export type StartRun = (queue: Queue, request: RunRequest) => Run;

/** Options of a sequence besides its model. */
export interface SequenceOptions {
  readonly priority?: number | undefined;
  /** Name of a low-rank adapter. */
  readonly adapter?: string | undefined;
}

/** Placeholder for a token without an id, such as a part of an image. */
export const NO_TOKEN = -1;

/**
 * Tokens and the cache of their keys and values, on one queue. Tokens after the cached ones are pending: the next call computes them. A
 * request for the next token needs the state after the last one. If no token is pending, it therefore computes the last token once more.
 */
export class Sequence {
  readonly model: ModelInfo;
  readonly queue: Queue;
  /** Token ids, from position `base` on. */
  readonly tokens: number[];
  /** Forward passes of the model that included this sequence. */
  forwardCalls = 0;
  readonly #options: SequenceOptions;
  readonly #fused: boolean;
  /** The pages that the device holds for this sequence. */
  cache: Cache;
  /** Set when cached tokens that cannot be recomputed are lost. */
  #lost: InferletError | undefined;
  #released = false;
  readonly #computing = new Set<Promise<unknown>>();

  constructor(model: ModelInfo, options: SequenceOptions, tokens: number[] = [], cache?: CacheState) {
    const { priority = 0 } = options;
    if (options.adapter !== undefined && !model.traits.includes('adapter')) {
      throw new InferletError('unsupported', `${model.name} takes no adapters (trait adapter).`);
    }
    this.model = model;
    this.queue = new Queue(model.name);
    if (priority !== 0) this.queue.setPriority(priority);
    this.tokens = tokens;
    this.#options = options;
    this.#fused = model.traits.includes('fused');
    this.cache = new Cache(this.queue, model.pageSize, cache);
  }

  /** Number of tokens whose keys and values are in the pages, or will be when the issued calls end. */
  get cached(): number {
    return this.cache.cached;
  }

  get pending(): number {
    return this.tokens.length - this.cache.cached;
  }

  /** Position of the first token whose id is known. */
  get base(): number {
    return this.cache.base;
  }

  /** One past the last token's position. */
  get length(): number {
    return this.cache.base + this.tokens.length;
  }

  /** Number of times that {@link compact} has reused positions. */
  get compactions(): number {
    return this.cache.compactions;
  }

  /** True when the model offers fused calls, and with them runs and constraints. */
  get fused(): boolean {
    return this.#fused;
  }

  get adapter(): string | undefined {
    return this.#options.adapter;
  }

  /** Appends tokens without computing them. Throws, and appends none, when a token does not exist or they do not fit. */
  append(tokens: ArrayLike<number>): void {
    checkTokens(this.model, tokens);
    this.checkRoom(tokens.length);
    for (let i = 0; i < tokens.length; i++) this.tokens.push(tokens[i] as number);
  }

  /** Throws `context-overflow` when `count` tokens more do not fit. */
  checkRoom(count: number): void {
    checkRoom(this.model, this.length, count);
  }

  /** Sets the sequence to `tokens`, and keeps the cached part of their common prefix. */
  replace(tokens: ArrayLike<number>): void {
    if (this.base > 0) throw new InferletError('invalid-argument', UNKNOWN_BEGINNING);
    const shared = commonPrefix(this.tokens, tokens);
    const dropped = this.tokens.splice(shared);
    try {
      this.append(Array.prototype.slice.call(tokens, shared) as number[]);
      // The last token must stay pending. Cached tokens after the common prefix belong to the old text.
      const kept = Math.min(shared, this.tokens.length - 1);
      if (kept < this.cached) this.cut(Math.max(0, kept));
    } catch (error) {
      this.tokens.length = shared;
      for (const token of dropped) this.tokens.push(token);
      throw error;
    }
  }

  /** Drops all tokens from position `length` on. */
  truncate(length: number): void {
    if (length >= this.length) return;
    const { base, floor, sealed } = this.cache;
    const kept = Math.max(0, length) - base;
    if (kept < 0 || (base > 0 && kept - 1 < floor && floor > 0)) {
      throw new InferletError('invalid-argument', UNKNOWN_BEGINNING);
    }
    const cached = kept === sealed ? kept : Math.max(0, kept - 1); // An image cannot be recomputed, so its end is never pending.
    if (cached < this.cached) this.cut(cached);
    this.tokens.length = kept;
  }

  /** Computes all pending tokens but the last. Undefined when at most one token is pending. */
  prefill(): Promise<unknown> | undefined {
    return this.pending > 1 ? this.compute(this.pending - 1) : undefined;
  }

  /** Computes the pending tokens and samples the next token on the device, in one call. `call` replaces `fused.step`, the default. */
  async sample(sampler: WireSampler, call?: StepCall): Promise<readonly number[]> {
    return (await this.#step(this.#due(), { tag: 'sample', val: sampler }, true, call)).tokens;
  }

  /** Computes the pending tokens and returns the next token's distribution, in one call. */
  distribution(topK: number, call?: StepCall): Promise<Distribution> {
    return this.#fusedDistribution(topK, true, call);
  }

  /**
   * Computes the pending tokens and the `drafts` after them in one call: one row of output for the last pending token and one for each
   * draft. The device then holds the drafts' keys and values, but the sequence does not count them: {@link accept} must take the right
   * drafts, and {@link cut} removes the others.
   */
  verify(drafts: readonly number[], output: Output, call?: StepCall): Promise<StepResult> {
    return this.#step(this.#due(), output, true, call, drafts);
  }

  /** Computes the pending tokens by embed and forward. @returns the embeds to free; the last one is the state after the last token */
  advance(): number[] {
    return this.#forward(this.#due(), true, true);
  }

  /** The next token's distribution. The last token stays pending; its key and value live for this call only. */
  async peek(topK: number): Promise<Distribution> {
    if (!this.#fused) return this.state((queue, embed) => outputText.nextDistribution(queue, embed, topK));
    const prefill = this.prefill();
    const distribution = this.#fusedDistribution(topK, false);
    // Both calls are under way. If both fail, the failure of `prefill` caused the other one, and `Promise.all` reports it.
    await Promise.all([prefill, distribution]);
    return distribution;
  }

  /** Runs `ask` on the state after the last token. That token stays pending. */
  async state<T>(ask: (queue: Queue, embed: number) => Future<Outcome<T>>): Promise<T> {
    const prefill = this.prefill();
    const embeds = this.#forward(this.#due(), false, true);
    const answer = this.settle(ask(this.queue, embeds.at(-1) as number));
    allocate.freeEmbeds(this.queue, embeds);
    await Promise.all([prefill, answer]);
    return answer;
  }

  /** Starts decoding ahead on the device, from the one pending token. Pass the sampled tokens to {@link accept} as they arrive. */
  run(maxTokens: number, sampler: WireSampler, stopTokens: readonly number[], start?: StartRun): Run {
    const first = this.firstPending(true);
    const request = {
      token: this.tokens[first] as number,
      position: this.base + first,
      pages: this.cache.extend(maxTokens),
      maxTokens,
      sampler,
      stopTokens,
    };
    return start ? start(this.queue, request) : new Run(this.queue, request);
  }

  /** Appends decoded tokens. The device has cached all tokens of the sequence but the last `uncomputed`. */
  accept(tokens: readonly number[], uncomputed = 1): void {
    for (const token of tokens) this.tokens.push(token);
    this.cache.advance(Math.max(0, this.pending - uncomputed));
  }

  /** Drops cached tokens from `kept` on. Also needed when the device may have written further than `cached`. */
  cut(kept: number): void {
    this.cache.cut(Math.min(kept, this.cached));
  }

  /** Drops the last `count` tokens. Never throws, since the earlier tokens stay valid. If the cache cannot be cut, later calls throw. */
  drop(count: number): void {
    const kept = this.tokens.length - count;
    try {
      if (this.cached > kept) this.cut(kept);
    } catch (thrown) {
      this.#lose(InferletError.from(thrown));
    }
    this.tokens.length = kept;
  }

  /**
   * The value of a call on the queue; `start` is the first token that the call computes, if any. When the call fails, its tokens are
   * pending again. This also takes the error from the queue, so that no later call reports it a second time.
   */
  settle<T>(future: Future<Outcome<T>>, start?: number): Promise<T> {
    const value = settleOn(this.queue, future, (unreported) => {
      if (this.#released) return;
      try {
        if (unreported) this.#lose(unreported);
        else if (start !== undefined) this.cut(start);
      } catch (thrown) {
        this.#lose(InferletError.from(thrown));
      }
    });
    return start === undefined ? value : holdUntilSettled(value, this.#computing);
  }

  /** Hides tokens `[from, to)` from all later computation, or shows them again. All of them must be cached. */
  mask(from: number, to: number, hidden: boolean): void {
    this.cache.mask(from, to, hidden);
  }

  /** Drops the cached tokens `[from, to)` for good. A later call with a larger `to` continues from the earlier end. */
  forget(from: number, to: number): void {
    this.cache.forget(from, to);
  }

  /** Keeps only the first `sink` and the last `recent` tokens. The recent tokens, with their keys, move up to close the gap. */
  compact(sink: number, recent: number): void {
    const from = this.tokens.length - recent;
    if (from <= sink || this.cached < from) return;
    this.cache.gather(
      Uint32Array.from({ length: sink + this.cached - from }, (_, i) => (i < sink ? i : i - sink + from)),
    );
    this.tokens.splice(sink, from - sink);
  }

  /** Computes all but the last token, then creates another sequence over the same pages, copy-on-write, on its own queue. */
  async fork(): Promise<Sequence> {
    const saved = await this.#shared();
    return new Sequence(this.model, this.#options, saved.tokens.slice(), saved.cache);
  }

  /** Captures the state for {@link restore}. Waits until all tokens but the last are computed. {@link discard} frees the state. */
  async snapshot(): Promise<Saved> {
    this.#checkLost();
    void this.prefill(); // `#computing` includes this call, so it is awaited below.
    const saved = { tokens: this.tokens.slice(), cache: this.cache.share() };
    try {
      await Promise.all(this.#computing);
      return saved;
    } catch (error) {
      await this.#giveUp(saved);
      throw error;
    }
  }

  restore(saved: Saved): void {
    this.cache.clear();
    this.tokens.length = 0;
    for (const token of saved.tokens) this.tokens.push(token);
    // Share the snapshot's pages under new addresses: the snapshot keeps its own addresses, and can be restored again.
    const ownState = new Cache(this.queue, this.model.pageSize, saved.cache).share();
    this.cache = new Cache(this.queue, this.model.pageSize, ownState);
    this.#lost = undefined;
  }

  discard({ cache }: Saved): void {
    if (cache.pages.length > 0) allocate.freePages(this.queue, cache.pages);
  }

  /** Appends the tokens of another sequence of the same model from index `from` on, with their keys and values. The last one is pending. */
  async join(other: Sequence, from: number): Promise<void> {
    const { base, floor } = other.cache;
    if (base > 0 || floor > 0) throw new InferletError('invalid-argument', NOTHING_TO_JOIN);
    const tokens = other.tokens.slice(from);
    if (tokens.length === 0) return;
    this.checkRoom(tokens.length);
    const computing = this.pending > 0 ? this.compute(this.pending) : undefined;
    const [computed, shared] = await Promise.allSettled([computing, other.#shared()]);
    if (shared.status === 'rejected') throw shared.reason;
    const { cache, tokens: sharedTokens } = shared.value;
    try {
      if (computed.status === 'rejected') throw computed.reason;
      if (this.#released) throw new InferletError('closed', 'The context was released while it was appended to.');
      this.cache.join(cache, from, Math.min(cache.cached, sharedTokens.length - 1));
      for (const token of tokens) this.tokens.push(token);
    } finally {
      if (cache.pages.length > 0) allocate.freePages(this.queue, cache.pages);
    }
  }

  /** Saves the keys and values of all tokens under a name of the tenant. */
  async save(name: string, persistent: boolean): Promise<void> {
    const computed = this.pending > 0 ? this.compute(this.pending) : undefined;
    this.#checkLost();
    const saved = this.settle(allocate.exportPages(this.queue, this.cache.filledPages, name, persistent));
    // A continuation needs the state of the last token: make it pending again.
    if (this.tokens.length > this.cache.sealed) this.cut(this.tokens.length - 1);
    await Promise.all([computed, saved]);
  }

  /** Fills an empty sequence from the pages saved under a name. `tokens`, if given, must be the saved ones. */
  async open(name: string, tokens: ArrayLike<number> | undefined): Promise<void> {
    await this.cache.open(name, tokens?.length);
    if (!tokens) return;
    this.append(tokens);
    if (tokens.length > 0) this.cut(tokens.length - 1);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.cache.clear();
  }

  /** A snapshot whose pages other queues may name. */
  async #shared(): Promise<Saved> {
    const saved = await this.snapshot();
    if (saved.cache.pages.length === 0) return saved;
    try {
      // Queues are not ordered with each other: the pages must exist before another queue names them.
      await settle(this.queue.synchronize());
      return saved;
    } catch (thrown) {
      this.#lose(InferletError.from(thrown));
      await this.#giveUp(saved);
      throw thrown;
    }
  }

  /** The device's state is unknown after `error`. Recompute all tokens later or, if some cannot be recomputed, keep the error. */
  #lose(error: InferletError): void {
    if (this.base > 0 || this.cache.sealed > 0) this.#lost ??= error;
    else this.cache.clear();
  }

  #checkLost(): void {
    if (this.#lost) throw this.#lost;
  }

  /** Frees a snapshot's pages after a failure, and takes the error from the queue. Works even if the pages could not be shared. */
  async #giveUp(saved: Saved): Promise<void> {
    this.discard(saved);
    await takeError(this.queue);
  }

  async #fusedDistribution(topK: number, write: boolean, call?: StepCall): Promise<Distribution> {
    const { distributions } = await this.#step(this.#due(), { tag: 'distributions', val: topK }, write, call);
    const [distribution] = distributions;
    if (!distribution) throw new InferletError('internal', 'The device handed out no distribution.');
    return distribution;
  }

  /** Computes the next `count` pending tokens. */
  compute(count: number): Promise<unknown> {
    if (this.#fused) return this.#step(count, { tag: 'none' }, true);
    const start = this.cached;
    allocate.freeEmbeds(this.queue, this.#forward(count, true));
    return this.settle(this.queue.synchronize(), start);
  }

  /** One fused call over `count` pending tokens and the drafts after them. `write` stores their keys and values. */
  #step(
    count: number,
    output: Output,
    write: boolean,
    call?: StepCall,
    drafts: readonly number[] = [],
  ): Promise<StepResult> {
    const start = this.firstPending(output.tag !== 'none');
    const inputs = count + drafts.length;
    const request = {
      tokens: this.tokens.slice(start, start + count).concat(drafts),
      positions: range(this.base + start, inputs),
      ...this.cache.access(write ? inputs : 0),
      rows: output.tag === 'none' ? 0 : drafts.length + 1,
      output,
    };
    if (write) this.cache.advance(count);
    this.forwardCalls++;
    const { adapter: name } = this;
    if (call) return this.settle(call(this.queue, request), start);
    const answer = name === undefined ? fused.step(this.queue, request) : adapter.step(this.queue, name, request);
    return this.settle(answer, start);
  }

  /** Embeds and forwards `count` pending tokens. Returns the embeds to free, with `withState` the state last. */
  #forward(count: number, write: boolean, withState = false): number[] {
    const start = this.firstPending(withState);
    const { inPages, outPages } = this.cache.access(write ? count : 0);
    const embeds = this.embed(start, count, count + (withState ? 1 : 0));
    this.pass(inPages, embeds.slice(0, count), outPages, embeds.slice(count));
    if (write) this.cache.advance(count);
    return embeds;
  }

  /** Allocates `total` embeds and fills the first `count` with the tokens from `start` on. */
  embed(start: number, count: number, total: number): number[] {
    const embeds = attempt(() => allocate.allocateEmbeds(this.queue, total));
    const inputs = embeds.slice(0, count);
    inputText.embedText(this.queue, this.tokens.slice(start, start + count), range(this.base + start, count), inputs);
    return embeds;
  }

  /** One forward pass over embeds. */
  pass(inPages: number[], inputs: number[], outPages: number[], outputs: number[], mask?: Mask): void {
    const { queue, adapter: name } = this;
    this.forwardCalls++;
    if (name === undefined) forward.forward(queue, inPages, inputs, outPages, outputs, mask);
    else adapter.forwardWithAdapter(queue, name, inPages, inputs, outPages, outputs, mask);
  }

  /** Index of the first pending token. With `withState`, makes sure that a token is pending. */
  firstPending(withState: boolean): number {
    this.#checkLost();
    if (withState) this.#due();
    return this.cached;
  }

  /** Number of pending tokens, at least one: if none is pending, makes the last token pending again, because its state is needed. */
  #due(): number {
    if (this.pending === 0 && this.tokens.length > this.cache.sealed) this.cut(this.tokens.length - 1);
    if (this.pending === 0) throw new InferletError('invalid-argument', NOTHING_PENDING);
    return this.pending;
  }
}

/** A captured state of a sequence, to be restored or discarded. */
export interface Saved {
  readonly tokens: readonly number[];
  readonly cache: CacheState;
}

/** @internal The saved state of a snapshot, and its sequence. */
export let savedIn: (snapshot: Snapshot) => { readonly sequence: Sequence; readonly saved: Saved | undefined };

/** A captured state of a context. It holds pages, shared with the context where possible; release it with `using`. */
export class Snapshot implements Disposable {
  readonly #sequence: Sequence;
  #saved: Saved | undefined;

  /** @internal Constructed by `Context.snapshot`. */
  constructor(sequence: Sequence, saved: Saved) {
    this.#sequence = sequence;
    this.#saved = saved;
  }

  static {
    savedIn = (snapshot) => ({ sequence: snapshot.#sequence, saved: snapshot.#saved });
  }

  /** Frees the snapshot's memory. The snapshot can no longer be restored. */
  release(): void {
    if (this.#saved) this.#sequence.discard(this.#saved);
    this.#saved = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

/** Throws `invalid-argument` when a model does not have all of these tokens. */
export function checkTokens({ name, vocabularySize }: ModelInfo, tokens: ArrayLike<number>): void {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    if (token === undefined || !Number.isInteger(token) || token < 0 || token >= vocabularySize) {
      throw new InferletError(
        'invalid-argument',
        `Token id ${token} (at index ${i}) is outside the vocabulary of ${name}, which has ids 0 to ${vocabularySize - 1}.`,
      );
    }
  }
}

/** Throws `context-overflow` when `count` more tokens do not fit after `length` tokens. */
export function checkRoom({ name, contextLength }: ModelInfo, length: number, count: number): void {
  const total = length + count;
  if (total <= contextLength) return;
  const onTop = length > 0 ? ` on top of the ${length} already there` : '';
  throw new ContextOverflowError(
    `The prompt has ${count} tokens${onTop}, but ${name} sees at most ${contextLength} at once. ` +
      `Leave out at least ${total - contextLength}.`,
    total,
    contextLength,
  );
}

/** The tokens that have an id, for a detokenizer: the parts of an image have none. */
export const withIds = (tokens: readonly number[]): number[] => tokens.filter((token) => token >= 0);

/**
 * Gives an empty sequence the model's begin-of-text token, because the first prediction needs a token. Throws when the model has none: no other
 * token, such as one that ends a text, stands in for it, because vLLM and llama.cpp refuse an empty prompt for such a model, too.
 */
export function beginText(sequence: Sequence): void {
  if (sequence.length > 0) return;
  const { name } = sequence.model;
  const { bos } = specialTokens(name);
  if (bos === null) throw nothingToBegin('The context', name);
  sequence.append([bos]);
}

/** The error for an empty text that a model without a begin-of-text token cannot continue. `what` is the text, such as "The context". */
export function nothingToBegin(what: string, model: string): InferletError {
  const text = `${what} is empty, and ${model} has no token that begins a text: give it a text of at least one character.`;
  return new InferletError('invalid-argument', text);
}

export const NOTHING_TO_JOIN =
  'A context that was opened without its tokens, or that dropped some in a window, cannot be appended: it lacks these tokens.';
export const NOTHING_PENDING =
  'The context was opened, or got an image, and no text since then: fill in some text first.';

/**
 * The value of a call on a queue. If the call fails, this also takes the queue's error, so that no later call reports it again, and calls `failed`.
 * `failed` gets undefined, unless an earlier call without a result of its own has failed first: then it gets the error of that call.
 */
export async function settleOn<T>(
  queue: Queue,
  future: Future<Outcome<T>>,
  failed: (unreported: InferletError | undefined) => void,
): Promise<T> {
  try {
    return await settle(future);
  } catch (thrown) {
    const { code, message } = InferletError.from(thrown);
    const first = await takeError(queue);
    failed(first?.code === code && first.message === message ? undefined : first);
    throw thrown;
  }
}

/** Takes the first error of a queue since the last call, if any. The queue then continues without the error. */
export async function takeError(queue: Queue): Promise<InferletError | undefined> {
  try {
    await settle(queue.synchronize());
    return undefined;
  } catch (thrown) {
    return InferletError.from(thrown);
  }
}

/** Keeps a call in `calls` until the call ends. @returns the call */
function holdUntilSettled<T>(call: Promise<T>, calls: Set<Promise<unknown>>): Promise<T> {
  const forget = () => void calls.delete(call);
  calls.add(call);
  call.then(forget, forget);
  return call;
}
