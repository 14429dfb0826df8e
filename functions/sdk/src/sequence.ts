import type { Output, StepResult, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import type { ModelInfo } from 'pie:inferlet/runtime@0.1.0';
import { InferletError } from './errors.ts';
import { commonPrefix, pagesFor, planTruncate, planWrite, range } from './pages.ts';
import { allocate, attempt, forward, fused, inputText, outputText, Queue, Run, settle } from './raw.ts';
import type { Distribution } from './samplers.ts';

/**
 * Tokens and the KV pages that hold their keys and values, on one queue. Pages are filled without gaps, so slot i belongs to token i.
 * Tokens behind the cached ones are pending: the next call computes them. At least one token is pending whenever something is to be
 * sampled, since its state is what the sampling needs.
 */
export class Sequence {
  readonly model: ModelInfo;
  readonly queue: Queue;
  readonly tokens: number[];
  #pages: number[];
  #cached: number;
  #released = false;
  readonly #fused: boolean;

  constructor(model: ModelInfo, priority: number, tokens: number[] = [], pages: number[] = [], cached = 0) {
    this.model = model;
    this.queue = new Queue(model.name);
    if (priority !== 0) this.queue.setPriority(priority);
    this.tokens = tokens;
    this.#pages = pages;
    this.#cached = cached;
    this.#fused = model.traits.includes('fused');
  }

  /** Tokens whose keys and values are in the pages, or on their way there. */
  get cached(): number {
    return this.#cached;
  }

  get pending(): number {
    return this.tokens.length - this.#cached;
  }

  get pages(): readonly number[] {
    return this.#pages;
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
    const total = this.tokens.length + tokens.length;
    if (total > contextLength) {
      const held = this.tokens.length > 0 ? ` on top of the ${this.tokens.length} already there` : '';
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

  /** Drops all tokens from `length` on. */
  truncate(length: number): void {
    if (length >= this.tokens.length) return;
    this.tokens.length = Math.max(0, length);
    if (length - 1 < this.#cached) this.cut(Math.max(0, length - 1));
  }

  /** Computes the pending tokens, all but the last. Undefined when there are none. */
  prefill(): Promise<unknown> | undefined {
    if (this.pending <= 1) return undefined;
    const count = this.pending - 1;
    if (this.#fused) return this.#step(count, { tag: 'none' }, true);
    allocate.freeEmbeds(this.queue, this.#forward(count, true));
    return settle(this.queue.synchronize());
  }

  /** Computes the pending tokens in one call and picks what follows, on the device. */
  async sample(sampler: WireSampler): Promise<readonly number[]> {
    return (await this.#step(this.pending, { tag: 'sample', val: sampler }, true)).tokens;
  }

  /** Computes the pending tokens and hands out what may follow; in three calls (embed, forward, next distribution) unless `fused`. */
  async distribution(topK: number, fused: boolean): Promise<Distribution> {
    return fused ? this.#fusedDistribution(topK, true) : this.#plainDistribution(topK, true);
  }

  /** What may follow the last token, which stays pending: its key and value live for this call only. */
  async peek(topK: number): Promise<Distribution> {
    const prefill = this.prefill();
    const distribution = this.#fused ? this.#fusedDistribution(topK, false) : this.#plainDistribution(topK, false);
    // Both are under way; the first failure is the cause of the second.
    await Promise.all([prefill, distribution]);
    return distribution;
  }

  async #fusedDistribution(topK: number, write: boolean): Promise<Distribution> {
    const { distributions } = await this.#step(this.pending, { tag: 'distributions', val: topK }, write);
    const [distribution] = distributions;
    if (!distribution) throw new InferletError('internal', 'The device handed out no distribution.');
    return distribution;
  }

  #plainDistribution(topK: number, write: boolean): Promise<Distribution> {
    const embeds = this.#forward(this.pending, write, true);
    const distribution = settle(outputText.nextDistribution(this.queue, embeds.at(-1) as number, topK));
    allocate.freeEmbeds(this.queue, embeds);
    return distribution;
  }

  /** One fused call over the next `count` pending tokens. */
  #step(count: number, output: Output, write: boolean): Promise<StepResult> {
    const start = this.#cached;
    const plan = this.#reserve(write ? count : 0);
    const request = {
      tokens: this.tokens.slice(start, start + count),
      positions: range(start, count),
      inPages: this.#pages.slice(0, plan.readEnd),
      outPages: write ? this.#pages.slice(plan.writeStart, plan.writeEnd) : [],
      rows: output.tag === 'none' ? 0 : 1,
      output,
    };
    if (write) this.#cached += count;
    return settle(fused.step(this.queue, request));
  }

  /** Embeds and forwards the next `count` pending tokens. Returns the embeds to free, the last one the state when it is wanted. */
  #forward(count: number, write: boolean, state = false): number[] {
    const start = this.#cached;
    const plan = this.#reserve(write ? count : 0);
    const embeds = attempt(() => allocate.allocateEmbeds(this.queue, count + (state ? 1 : 0)));
    const inputs = embeds.slice(0, count);
    inputText.embedText(this.queue, this.tokens.slice(start, start + count), range(start, count), inputs);
    const outPages = write ? this.#pages.slice(plan.writeStart, plan.writeEnd) : [];
    forward.forward(this.queue, this.#pages.slice(0, plan.readEnd), inputs, outPages, embeds.slice(count), undefined);
    if (write) this.#cached += count;
    return embeds;
  }

  /** Starts decoding ahead, on the device, from the one pending token. {@link accept} then takes the tokens as they come. */
  run(maxTokens: number, sampler: WireSampler, stopTokens: readonly number[]): Run {
    this.#reserve(maxTokens);
    return new Run(this.queue, {
      token: this.tokens[this.#cached] as number,
      position: this.#cached,
      pages: this.#pages.slice(0, pagesFor(this.#cached + maxTokens, this.model.pageSize)),
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
   * Ends the filled slots at `slots`. Pages behind are given back; the page in which the cut falls is copied, since a page cannot give
   * single slots back. Needed too when the device may have written further than is accounted for here.
   */
  cut(slots: number): void {
    const { keep, copySlots } = planTruncate(slots, this.model.pageSize);
    this.#cached = slots;
    const rest = this.#pages.slice(keep);
    if (rest.length === 0) return;
    this.#pages = this.#pages.slice(0, keep);
    const source = rest[0];
    if (copySlots > 0 && source !== undefined) {
      const fresh = attempt(() => allocate.allocatePages(this.queue, 1));
      allocate.copySlots(this.queue, source, 0, fresh[0] as number, 0, copySlots);
      this.#pages.push(...fresh);
    }
    allocate.freePages(this.queue, rest);
  }

  /** Another sequence over the same pages, copy-on-write, on a queue of its own. All but the last token are computed first. */
  async fork(priority: number): Promise<Sequence> {
    const prefill = this.prefill();
    const tokens = this.tokens.slice();
    const cached = this.#cached;
    const source = this.#pages.slice(0, pagesFor(cached, this.model.pageSize));
    const shared = source.length > 0 ? attempt(() => allocate.sharePages(this.queue, source)) : [];
    await prefill;
    // Between queues there is no order: the pages must exist before the fork's queue names them.
    if (shared.length > 0) await settle(this.queue.synchronize());
    return new Sequence(this.model, priority, tokens, shared, cached);
  }

  /** Gives all pages back. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#pages.length > 0) allocate.freePages(this.queue, this.#pages);
    this.#pages = [];
    this.#cached = 0;
  }

  #reserve(count: number): ReturnType<typeof planWrite> {
    const plan = planWrite(this.#cached, count, this.#pages.length, this.model.pageSize);
    if (plan.allocate > 0) this.#pages.push(...attempt(() => allocate.allocatePages(this.queue, plan.allocate)));
    return plan;
  }
}
