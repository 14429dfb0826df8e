import type { Output, StepRequest, StepResult, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import type { ModelInfo } from 'pie:inferlet/runtime@0.1.0';
import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { InferletError } from './errors.ts';
import { commonPrefix, gatherMasks, maskSlots, pagesFor, planForget, planTruncate, planWrite, range } from './pages.ts';
import { allocate, attempt, forward, fused, inputText, outputText, Queue, Run, settle } from './raw.ts';
import type { Distribution } from './samplers.ts';

/** What a sequence has in the model's memory. */
interface Cache {
  readonly pages: readonly number[];
  /** Slots of each page that were hidden here: bit 0 is its slot 0. */
  readonly masks: readonly number[];
  /** The first so many pages hold what was opened: what else is hidden in them the device alone knows, and a mask set anew would show it. */
  readonly foreign: number;
  /** Tokens of the sequence whose keys and values are in the pages, or on their way there. */
  readonly cached: number;
  /** Position of the sequence's first token: what lies before was imported, and its token ids are not known. */
  readonly base: number;
  /** Token i has slot `i + skew` of the pages: slots that were imported come before it, those that were given back are gone. */
  readonly skew: number;
  /** Tokens before this one may be gone from the pages: to cut the sequence there is to compute it anew. */
  readonly floor: number;
  /** How often positions were counted anew, so that tokens may have positions that others had. */
  readonly compactions: number;
}

const EMPTY: Cache = { pages: [], masks: [], foreign: 0, cached: 0, base: 0, skew: 0, floor: 0, compactions: 0 };

/** Starts a fused call on a queue: `fused.step`, or one like it. */
export type StepCall = (queue: Queue, request: StepRequest) => Future<Outcome<StepResult>>;

/**
 * Tokens and the KV pages that hold their keys and values, on one queue. Pages are filled without gaps. Tokens behind the cached ones are
 * pending: the next call computes them. At least one token is pending whenever something is to be sampled, since its state is what the
 * sampling needs.
 */
export class Sequence {
  readonly model: ModelInfo;
  readonly queue: Queue;
  /** Token ids, from position `base` on. */
  readonly tokens: number[];
  #pages: number[];
  #masks: number[];
  #foreign: number;
  #cached: number;
  #base: number;
  #skew: number;
  #floor: number;
  #compactions: number;
  #released = false;
  readonly #fused: boolean;

  constructor(model: ModelInfo, priority: number, tokens: number[] = [], cache: Cache = EMPTY) {
    this.model = model;
    this.queue = new Queue(model.name);
    if (priority !== 0) this.queue.setPriority(priority);
    this.tokens = tokens;
    this.#pages = cache.pages.slice();
    this.#masks = cache.masks.slice();
    this.#foreign = cache.foreign;
    this.#cached = cache.cached;
    this.#base = cache.base;
    this.#skew = cache.skew;
    this.#floor = cache.floor;
    this.#compactions = cache.compactions;
    this.#fused = model.traits.includes('fused');
  }

  /** Tokens whose keys and values are in the pages, or on their way there. */
  get cached(): number {
    return this.#cached;
  }

  get pending(): number {
    return this.tokens.length - this.#cached;
  }

  /** Position of the first token whose id is known. */
  get base(): number {
    return this.#base;
  }

  /** One past the last token's position. */
  get length(): number {
    return this.#base + this.tokens.length;
  }

  /** How often {@link compact} has moved tokens to positions that others had. */
  get compactions(): number {
    return this.#compactions;
  }

  /** Appends tokens without computing them. Throws when they do not exist or do not fit, and then appends none. */
  append(tokens: ArrayLike<number>): void {
    const { name, contextLength, vocabularySize } = this.model;
    for (let i = 0; i < tokens.length; i++) {
      const token = tokens[i];
      if (token === undefined || !Number.isInteger(token) || token < 0 || token >= vocabularySize) {
        throw new InferletError(
          'invalid-argument',
          `Token id ${token} (at index ${i}) is outside the vocabulary of ${name}, which has ids 0 to ${vocabularySize - 1}.`,
        );
      }
    }
    const total = this.length + tokens.length;
    if (total > contextLength) {
      const held = this.length > 0 ? ` on top of the ${this.length} already there` : '';
      throw new InferletError(
        'context-overflow',
        `The prompt has ${tokens.length} tokens${held}, but ${name} sees at most ${contextLength} at once. ` +
          `Leave out at least ${total - contextLength}.`,
      );
    }
    for (let i = 0; i < tokens.length; i++) this.tokens.push(tokens[i] as number);
  }

  /** Makes the sequence exactly `tokens`, keeping what is cached of their common beginning. */
  replace(tokens: ArrayLike<number>): void {
    if (this.#base > 0) throw new InferletError('invalid-argument', UNKNOWN_BEGINNING);
    const shared = commonPrefix(this.tokens, tokens);
    const rest = Array.prototype.slice.call(tokens, shared) as number[];
    const dropped = this.tokens.slice(shared);
    this.tokens.length = shared;
    try {
      this.append(rest);
    } catch (error) {
      this.tokens.push(...dropped);
      throw error;
    }
    // The last token must stay pending, and what was cached beyond the common part is of the old text.
    const kept = Math.min(shared, this.tokens.length - 1);
    if (kept < this.#cached) this.cut(Math.max(0, kept));
  }

  /** Drops all tokens from position `length` on. */
  truncate(length: number): void {
    if (length >= this.length) return;
    const kept = Math.max(0, length) - this.#base;
    if (kept < 0 || (this.#base > 0 && kept - 1 < this.#floor && this.#floor > 0))
      throw new InferletError('invalid-argument', UNKNOWN_BEGINNING);
    this.tokens.length = kept;
    if (kept - 1 < this.#cached) this.cut(Math.max(0, kept - 1));
  }

  /** Computes the pending tokens, all but the last. Undefined when there are none. */
  prefill(): Promise<unknown> | undefined {
    return this.pending > 1 ? this.#compute(this.pending - 1) : undefined;
  }

  /** Computes the pending tokens in one call and picks what follows, on the device; `call` is `fused.step` or one like it. */
  async sample(sampler: WireSampler, call?: StepCall): Promise<readonly number[]> {
    return (await this.#step(this.pending, { tag: 'sample', val: sampler }, true, call)).tokens;
  }

  /** Computes the pending tokens and hands out what may follow, in one call. */
  distribution(topK: number, call?: StepCall): Promise<Distribution> {
    return this.#fusedDistribution(topK, true, call);
  }

  /** The same in three calls: embed, forward, next distribution. */
  plainDistribution(topK: number): Promise<Distribution> {
    return this.#ask((queue, embed) => outputText.nextDistribution(queue, embed, topK), true);
  }

  /** What may follow, without taking it: the last pending token stays pending, and its key and value live for this call only. */
  async peek(topK: number): Promise<Distribution> {
    if (!this.#fused) return this.state((queue, embed) => outputText.nextDistribution(queue, embed, topK));
    const prefill = this.prefill();
    const distribution = this.#fusedDistribution(topK, false);
    // Both are under way; the first failure is the cause of the second.
    await Promise.all([prefill, distribution]);
    return distribution;
  }

  /** Asks something of the state after the last token, which stays pending. */
  async state<T>(ask: (queue: Queue, embed: number) => Future<Outcome<T>>): Promise<T> {
    const prefill = this.prefill();
    const answer = this.#ask(ask, false);
    await Promise.all([prefill, answer]);
    return answer;
  }

  async #fusedDistribution(topK: number, write: boolean, call?: StepCall): Promise<Distribution> {
    const { distributions } = await this.#step(this.pending, { tag: 'distributions', val: topK }, write, call);
    const [distribution] = distributions;
    if (!distribution) throw new InferletError('internal', 'The device handed out no distribution.');
    return distribution;
  }

  #ask<T>(ask: (queue: Queue, embed: number) => Future<Outcome<T>>, write: boolean): Promise<T> {
    const embeds = this.#forward(this.pending, write, true);
    const answer = settle(ask(this.queue, embeds.at(-1) as number));
    allocate.freeEmbeds(this.queue, embeds);
    return answer;
  }

  /** Computes the next `count` pending tokens. */
  #compute(count: number): Promise<unknown> {
    if (this.#fused) return this.#step(count, { tag: 'none' }, true);
    allocate.freeEmbeds(this.queue, this.#forward(count, true));
    return settle(this.queue.synchronize());
  }

  /** One fused call over the next `count` pending tokens. */
  #step(count: number, output: Output, write: boolean, call: StepCall = fused.step): Promise<StepResult> {
    const start = this.#next(output.tag !== 'none');
    const plan = this.#reserve(write ? count : 0);
    const request = {
      tokens: this.tokens.slice(start, start + count),
      positions: range(this.#base + start, count),
      inPages: this.#pages.slice(0, plan.readEnd),
      outPages: write ? this.#pages.slice(plan.writeStart, plan.writeEnd) : [],
      rows: output.tag === 'none' ? 0 : 1,
      output,
    };
    if (write) this.#cached += count;
    return settle(call(this.queue, request));
  }

  /** Embeds and forwards the next `count` pending tokens. Returns the embeds to free, the last one the state when it is wanted. */
  #forward(count: number, write: boolean, state = false): number[] {
    const start = this.#next(state);
    const plan = this.#reserve(write ? count : 0);
    const embeds = attempt(() => allocate.allocateEmbeds(this.queue, count + (state ? 1 : 0)));
    const inputs = embeds.slice(0, count);
    const positions = range(this.#base + start, count);
    inputText.embedText(this.queue, this.tokens.slice(start, start + count), positions, inputs);
    const outPages = write ? this.#pages.slice(plan.writeStart, plan.writeEnd) : [];
    forward.forward(this.queue, this.#pages.slice(0, plan.readEnd), inputs, outPages, embeds.slice(count), undefined);
    if (write) this.#cached += count;
    return embeds;
  }

  /** Starts decoding ahead, on the device, from the one pending token. {@link accept} then takes the tokens as they come. */
  run(maxTokens: number, sampler: WireSampler, stopTokens: readonly number[]): Run {
    const start = this.#next(true);
    const { writeEnd } = this.#reserve(maxTokens);
    return new Run(this.queue, {
      token: this.tokens[start] as number,
      position: this.#base + start,
      pages: this.#pages.slice(0, writeEnd),
      maxTokens,
      sampler,
      stopTokens,
    });
  }

  /** Appends tokens that a run sampled: all before the last are cached by it. */
  accept(tokens: readonly number[]): void {
    for (const token of tokens) this.tokens.push(token);
    this.#cached = this.tokens.length - 1;
  }

  /**
   * Ends the cached tokens at `kept`. Pages behind are given back; the page in which the cut falls is copied, since a page cannot give
   * single slots back. Needed too when the device may have written further than is accounted for here.
   */
  cut(kept: number): void {
    if (kept < this.#floor) {
      this.#forgetAll();
      return;
    }
    const { keep, copySlots } = planTruncate(kept + this.#skew, this.model.pageSize);
    this.#cached = kept;
    const rest = this.#pages.slice(keep);
    if (rest.length === 0) return;
    this.#pages.length = keep;
    this.#foreign = Math.min(this.#foreign, keep + (copySlots > 0 ? 1 : 0));
    const source = rest[0];
    this.#masks.length = Math.min(this.#masks.length, keep + (copySlots > 0 ? 1 : 0));
    if (this.#masks.length > keep) this.#masks[keep] = (this.#masks[keep] ?? 0) & ((1 << copySlots) - 1);
    if (copySlots > 0 && source !== undefined) {
      const fresh = attempt(() => allocate.allocatePages(this.queue, 1));
      allocate.copySlots(this.queue, source, 0, fresh[0] as number, 0, copySlots, 0);
      this.#pages.push(...fresh);
    }
    allocate.freePages(this.queue, rest);
  }

  /** Hides tokens `[from, to)` from everything that is computed later, or shows them again. All of them must be cached. */
  mask(from: number, to: number, hidden: boolean): void {
    const known = this.#foreign * this.model.pageSize - this.#skew;
    if (from < to && from < known) throw new InferletError('invalid-argument', OPENED_MASKS);
    if (!(from >= this.#floor && from <= to && to <= this.#cached)) {
      const range = `from ${this.#base + this.#floor} to ${this.#base + this.#cached}`;
      throw new InferletError('invalid-argument', `The tokens that can be hidden or shown are those ${range}.`);
    }
    for (const page of maskSlots(this.#masks, from + this.#skew, to + this.#skew, hidden, this.model.pageSize)) {
      this.#applyMask(page);
    }
  }

  /**
   * Gives up the cached tokens `[from, to)` for good, with the pages that hold nothing else. Called again with a larger `to`, it goes on.
   * Of what was opened only whole pages go; the rest of a page stays in sight.
   */
  forget(from: number, to: number): void {
    const { pageSize } = this.model;
    const start = Math.max(from, this.#floor);
    if (to <= start) return;
    const { first, count, masked, end } = planForget(this.#masks, start + this.#skew, to + this.#skew, pageSize);
    for (const page of masked) if (page >= this.#foreign) this.#applyMask(page);
    this.#floor = end - this.#skew;
    if (count === 0) return;
    allocate.freePages(this.queue, this.#pages.splice(first, count));
    this.#masks.splice(first, count);
    this.#foreign -= Math.max(0, Math.min(this.#foreign, first + count) - first);
    this.#skew -= count * pageSize;
  }

  /** Keeps the first `sink` tokens and the last `recent` ones, as if they were the whole text: those behind the gap move up, keys and all. */
  compact(sink: number, recent: number): void {
    if (this.#base > 0 || this.#floor > 0) {
      throw new InferletError(
        'invalid-argument',
        'What was opened or has slid cannot be compacted: its tokens are gone.',
      );
    }
    const from = this.tokens.length - recent;
    if (from <= sink || this.#cached < from) return;
    const indices = Uint32Array.from({ length: sink + this.#cached - from }, (_, i) =>
      i < sink ? i : i - sink + from,
    );
    const { pageSize } = this.model;
    const fresh = attempt(() => allocate.allocatePages(this.queue, pagesFor(indices.length, pageSize)));
    allocate.copyTokens(this.queue, this.#pages, indices, fresh, range(0, indices.length));
    allocate.freePages(this.queue, this.#pages);
    this.#pages = fresh.slice();
    // The device takes what is hidden along.
    this.#masks = gatherMasks(this.#masks, indices, pageSize);
    const foreign = this.#foreign * pageSize;
    this.#foreign = pagesFor(indices.filter((slot) => slot < foreign).length, pageSize);
    this.#cached = indices.length;
    this.tokens.splice(sink, from - sink);
    this.#compactions++;
  }

  /** Another sequence over the same pages, copy-on-write, on a queue of its own. All but the last token are computed first. */
  async fork(priority: number): Promise<Sequence> {
    const prefill = this.prefill();
    const tokens = this.tokens.slice();
    const source = this.#filledPages();
    const shared = source.length > 0 ? attempt(() => allocate.sharePages(this.queue, source)) : [];
    const cache = {
      pages: shared,
      masks: this.#masks.slice(0, shared.length),
      foreign: this.#foreign,
      cached: this.#cached,
      base: this.#base,
      skew: this.#skew,
      floor: this.#floor,
      compactions: this.#compactions,
    };
    await prefill;
    // Between queues there is no order: the pages must exist before the fork's queue names them.
    if (shared.length > 0) await settle(this.queue.synchronize());
    return new Sequence(this.model, priority, tokens, cache);
  }

  /** Saves the keys and values of all tokens under a name of the tenant's. */
  async save(name: string, persistent: boolean): Promise<void> {
    const computed = this.pending > 0 ? this.#compute(this.pending) : undefined;
    const saved = settle(allocate.exportPages(this.queue, this.#filledPages(), name, persistent));
    // What goes on from here needs the state of the last token.
    if (this.tokens.length > 0) this.cut(this.tokens.length - 1);
    await Promise.all([computed, saved]);
  }

  /** Begins a sequence that has nothing yet with what was saved under a name; `tokens`, when they are known, must be those that were saved. */
  async open(name: string, tokens: ArrayLike<number> | undefined): Promise<void> {
    const { pages, tokens: slots, nextPosition } = await settle(allocate.importPages(this.queue, name));
    const { pageSize } = this.model;
    this.#pages = pages.slice();
    this.#foreign = pages.length;
    if (tokens === undefined) {
      // What follows begins in a page of its own, so that it can be hidden; a write to a shared page would copy it anyway.
      this.#base = nextPosition;
      this.#skew = pages.length * pageSize;
      return;
    }
    const whole = pagesFor(slots, pageSize) === pages.length;
    if (!whole || tokens.length !== slots || nextPosition !== slots) {
      throw new InferletError(
        'invalid-argument',
        `"${name}" holds ${slots} tokens, not the ${tokens.length} that were given.`,
      );
    }
    this.append(tokens);
    this.#cached = slots;
    if (slots > 0) this.cut(slots - 1);
  }

  /** Gives all pages back. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#forgetAll();
  }

  /** Gives all pages back; every token is pending again. */
  #forgetAll(): void {
    if (this.#pages.length > 0) allocate.freePages(this.queue, this.#pages);
    this.#pages = [];
    this.#masks = [];
    this.#foreign = 0;
    this.#cached = 0;
    this.#skew = 0;
    this.#floor = 0;
  }

  /** Index of the first pending token; there must be one when something is asked of the last one's state. */
  #next(state: boolean): number {
    if (state && this.pending === 0) throw new InferletError('invalid-argument', NOTHING_PENDING);
    return this.#cached;
  }

  #filledPages(): number[] {
    return this.#pages.slice(0, pagesFor(this.#cached + this.#skew, this.model.pageSize));
  }

  #applyMask(page: number): void {
    forward.maskPage(this.queue, this.#pages[page] as number, this.#masks[page] ?? 0);
  }

  #reserve(count: number): ReturnType<typeof planWrite> {
    const plan = planWrite(this.#cached + this.#skew, count, this.#pages.length, this.model.pageSize);
    if (plan.allocate > 0) this.#pages.push(...attempt(() => allocate.allocatePages(this.queue, plan.allocate)));
    return plan;
  }
}

const UNKNOWN_BEGINNING =
  'This context was opened without its tokens, so its beginning cannot change: open it with them.';
const OPENED_MASKS =
  'What was opened, and what shares a page with it, cannot be hidden or shown: what was hidden when it was saved is not known here.';
const NOTHING_PENDING = 'Nothing was filled in since the context was opened: what follows begins with new text.';
