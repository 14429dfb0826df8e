/** How much of what was read stays in sight. */
export interface LevelOptions {
  /** Tokens that each of the last blocks leaves behind, its last ones. */
  readonly landmarks: number;
  /** Blocks that leave all their landmarks; older ones leave one. */
  readonly recentBlocks: number;
  /** Most tokens that older blocks leave; the oldest go first. */
  readonly maxKept: number;
}

/** First tokens that always stay: where a model puts the attention that it needs nowhere (Xiao et al., Attention Sinks, 2024). */
const SINK = 4;

/**
 * Which of the tokens in sight stay when a block ends. What is in sight is, in order: the sink, one landmark for each old block, the landmarks
 * of recent blocks, the block that ends.
 */
export class Levels {
  readonly #options: LevelOptions;
  #sink = 0;
  #old = 0;
  /** Landmarks of each recent block, oldest first. */
  #recent: number[] = [];

  constructor(options: LevelOptions) {
    this.#options = options;
  }

  /** Ends a block of `size` tokens. Indices, among the tokens in sight, of those that stay. */
  close(size: number): number[] {
    const { landmarks, recentBlocks, maxKept } = this.#options;
    const first = this.#sink === 0 ? Math.min(SINK, size) : 0;
    const before = this.#sink + this.#old + this.#recent.reduce((sum, count) => sum + count, 0);
    const recent = [...this.#recent.map((count) => ({ count })), { count: Math.min(landmarks, size - first) }];
    const indices = range(0, this.#sink + first);
    const aged = Math.max(0, recent.length - recentBlocks);
    const old = range(this.#sink, this.#old);
    let at = this.#sink + this.#old;
    for (const [i, { count }] of recent.entries()) {
      const end = i === recent.length - 1 ? before + size : at + count;
      if (i < aged) old.push(...range(end - Math.min(1, count), Math.min(1, count)));
      at = end;
    }
    const keptOld = old.slice(Math.max(0, old.length - maxKept));
    indices.push(...keptOld);
    at = this.#sink + this.#old;
    for (const [i, { count }] of recent.entries()) {
      const end = i === recent.length - 1 ? before + size : at + count;
      if (i >= aged) indices.push(...range(end - count, count));
      at = end;
    }
    this.#sink += first;
    this.#old = keptOld.length;
    this.#recent = recent.slice(aged).map(({ count }) => count);
    return indices;
  }
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
