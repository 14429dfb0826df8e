import { model } from '@pie/inferlet';
import { allocate, inputText, introspect, outputText, Queue, settle } from '@pie/inferlet/raw';

export interface CacheOptions {
  readonly model: string | undefined;
  /** Number of tokens that an eviction keeps and copies. So that evictions are rare, the cache first grows to 1.5 times this number. */
  readonly budget: number;
  /** Number of last tokens that stay, regardless of the attention they received. */
  readonly recent: number;
}

/**
 * Each call multiplies the attention received so far by this factor. Without decay the first tokens would lead for ever, because most
 * queries have seen them (Jo and Shin, A2SF: Accumulative Attention Scoring with Forgetting Factor, 2024).
 */
const ATTENTION_DECAY = 0.8;

/**
 * Holds keys and values of the tokens that received most attention, and of the last tokens (H2O: Zhang et al., Heavy-Hitter Oracle, NeurIPS
 * 2023). An eviction copies these into fresh pages and drops all other tokens for good.
 */
export class EvictingCache {
  readonly #options: CacheOptions;
  readonly #queue: Queue;
  readonly #pageSize: number;
  readonly contextLength: number;
  #pages: readonly number[] = [];
  /** Indices, among all tokens read, of the tokens that the cache holds; in order. */
  held: readonly number[] = [];
  /** Attention that each held token has received so far. */
  #received: number[] = [];
  /** Position of each held token. */
  #positions: number[] = [];
  #nextPosition = 0;
  /** Number of tokens read so far. */
  #readTokens = 0;
  mostHeld = 0;

  constructor(options: CacheOptions) {
    this.#options = options;
    const { name, contextLength } = model(options.model);
    this.contextLength = contextLength;
    this.#queue = new Queue(name);
    this.#pageSize = allocate.pageSize(this.#queue);
  }

  /**
   * Computes tokens in one call. @returns the log-probability of `wanted[i]` right after `tokens[i]`, and the model's most probable token
   * after the last one
   */
  async read(
    tokens: readonly number[],
    wanted: readonly number[],
  ): Promise<{ logProbabilities: number[]; next: number }> {
    const queue = this.#queue;
    const { budget } = this.#options;
    const isFull = this.#received.length >= budget + Math.ceil(budget / 2);
    if (isFull || this.#nextPosition + tokens.length > this.contextLength) this.#evict();
    const held = this.#received.length;
    const count = tokens.length;
    const missing = Math.ceil((held + count) / this.#pageSize) - this.#pages.length;
    const pages = missing > 0 ? [...this.#pages, ...allocate.allocatePages(queue, missing)] : this.#pages;
    const positions = tokens.map((_, i) => this.#nextPosition + i);
    const embeds = allocate.allocateEmbeds(queue, 2 * count);
    const states = embeds.slice(count);
    inputText.embedText(queue, tokens, positions, embeds.slice(0, count));
    const outPages = pages.slice(Math.floor(held / this.#pageSize));
    const [scores, best, ...found] = await Promise.all([
      settle(introspect.forwardScores(queue, this.#pages, embeds.slice(0, count), outPages, states, undefined)),
      settle(outputText.nextDistribution(queue, states.at(-1) ?? 0, 1)),
      ...wanted.map((token, i) => settle(outputText.logProbabilities(queue, states[i] ?? 0, [token]))),
    ]);
    allocate.freeEmbeds(queue, embeds);
    const inputScores = scores.slice(this.#pages.length * this.#pageSize);
    for (let i = 0; i < held; i++) this.#received[i] = ATTENTION_DECAY * (this.#received[i] ?? 0) + (scores[i] ?? 0);
    this.#received.push(...inputScores);
    this.#positions.push(...positions);
    this.held = [...this.held, ...tokens.map((_, i) => this.#readTokens + i)];
    this.#readTokens += count;
    this.#nextPosition += count;
    this.#pages = pages;
    this.mostHeld = Math.max(this.mostHeld, this.#received.length);
    return { logProbabilities: found.map(([value = 0]) => value), next: best.tokens[0] ?? 0 };
  }

  #evict(): void {
    const { budget, recent } = this.#options;
    const firstRecent = this.#received.length - recent;
    const heavy = this.#received
      .slice(0, firstRecent)
      .map((score, index) => ({ score, index }))
      .sort((a, b) => b.score - a.score)
      .slice(0, budget - recent)
      .map(({ index }) => index)
      .sort((a, b) => a - b);
    const kept = [...heavy, ...Array.from({ length: recent }, (_, i) => firstRecent + i)];
    // Move all kept tokens back by the same number of positions, to free about half of the context. No position falls below the token's rank, so
    // positions stay distinct and in order.
    const shift = Math.max(0, this.#nextPosition - Math.floor(this.contextLength / 2));
    const positions = kept.map((index, rank) => Math.max(rank, (this.#positions[index] ?? 0) - shift));
    const fresh = allocate.allocatePages(this.#queue, Math.ceil(kept.length / this.#pageSize));
    allocate.copyTokens(this.#queue, this.#pages, kept, fresh, positions);
    allocate.freePages(this.#queue, this.#pages);
    this.#pages = fresh;
    this.held = kept.map((index) => this.held[index] ?? 0);
    this.#received = kept.map((index) => this.#received[index] ?? 0);
    this.#positions = positions;
    this.#nextPosition = (positions.at(-1) ?? -1) + 1;
  }
}
