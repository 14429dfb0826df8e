import { z } from 'zod';

/** Shortest word that this merger takes, in characters. The tokenizer library merges shorter words itself and caches the results. */
export const LONG_WORD = 48;

const mergesSchema = z.looseObject({
  type: z.literal('BPE'),
  vocab: z.record(z.string(), z.int().min(0)),
  merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
  continuing_subword_prefix: z.string().nullish(),
  end_of_word_suffix: z.string().nullish(),
});

/** With these limits, a pair of ids, or a rank with a position, fits one number without rounding. */
const MAX_IDS = 2 ** 21;
const MAX_POSITIONS = 2 ** 27;
const UNKNOWN = -1;

/**
 * Byte-pair merging of one long word, over ids instead of strings. The library needs microseconds per character, so a long text without spaces
 * would block the thread. The result equals that of the plain algorithm: always merge the pair with the lowest rank, and of several such pairs
 * the leftmost.
 *
 * @param model the `model` of a tokenizer.json
 * @returns a function that cuts a word into pieces; null when this algorithm does not support the model
 */
export function createLongWordMerger(model: unknown): ((word: string) => string[]) | null {
  const parsed = mergesSchema.safeParse(model);
  if (!parsed.success || parsed.data.continuing_subword_prefix || parsed.data.end_of_word_suffix) return null;
  const { vocab, merges } = parsed.data;
  const ids = new Map(Object.entries(vocab));
  const spelling: string[] = [];
  for (const [token, id] of ids) {
    if (id >= MAX_IDS) return null;
    spelling[id] = token;
  }
  /** Pair of ids → rank; a later duplicate wins, as in the library. */
  const ranks = new Map<number, number>();
  const mergedIds = new Int32Array(merges.length);
  for (const [rank, merge] of merges.entries()) {
    const [left = '', right = ''] = typeof merge === 'string' ? merge.split(' ', 2) : merge;
    const [leftId, rightId, mergedId] = [ids.get(left), ids.get(right), ids.get(left + right)];
    if (leftId === undefined || rightId === undefined || mergedId === undefined) return null;
    ranks.set(leftId * MAX_IDS + rightId, rank);
    mergedIds[rank] = mergedId;
  }
  return (word) => mergeWord(word, ids, spelling, ranks, mergedIds);
}

function mergeWord(
  word: string,
  ids: ReadonlyMap<string, number>,
  spelling: readonly string[],
  ranks: ReadonlyMap<number, number>,
  mergedIds: Int32Array,
): string[] {
  const characters = Array.from(word);
  const { length } = characters;
  if (length >= MAX_POSITIONS) throw new RangeError(`a word of ${length} characters is too long to tokenize`);
  const symbols = Int32Array.from(characters, (character) => ids.get(character) ?? UNKNOWN);
  // `next` and `previous` link the positions that still have a symbol. A merged symbol stays at the position of its left part.
  const next = Int32Array.from({ length }, (_, i) => i + 1);
  const previous = Int32Array.from({ length }, (_, i) => i - 1);
  const removed = new Uint8Array(length);
  const rankAt = (position: number): number | undefined => {
    const right = next[position] as number;
    if (right >= length) return undefined;
    const [leftId, rightId] = [symbols[position] as number, symbols[right] as number];
    return leftId === UNKNOWN || rightId === UNKNOWN ? undefined : ranks.get(leftId * MAX_IDS + rightId);
  };
  const queue = new NumberQueue();
  const offer = (position: number) => {
    const rank = rankAt(position);
    // The key orders offers by rank, then by position.
    if (rank !== undefined) queue.push(rank * MAX_POSITIONS + position);
  };
  for (let position = 0; position < length - 1; position++) offer(position);

  for (let key = queue.pop(); key !== undefined; key = queue.pop()) {
    const position = key % MAX_POSITIONS;
    const rank = (key - position) / MAX_POSITIONS;
    // Skip a pair that an earlier merge has changed: that merge has offered the new pair at this position.
    if (removed[position] === 1 || rankAt(position) !== rank) continue;
    const right = next[position] as number;
    const afterRight = next[right] as number;
    symbols[position] = mergedIds[rank] as number;
    removed[right] = 1;
    next[position] = afterRight;
    if (afterRight < length) previous[afterRight] = position;
    offer(position);
    const previousPosition = previous[position] as number;
    if (previousPosition >= 0) offer(previousPosition);
  }

  const pieces: string[] = [];
  for (let position = 0; position < length; position = next[position] as number) {
    const id = symbols[position] as number;
    pieces.push((id === UNKNOWN ? characters[position] : spelling[id]) as string);
  }
  return pieces;
}

/** A binary heap of numbers, smallest first. */
class NumberQueue {
  readonly #heap: number[] = [];

  push(value: number): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(value);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const parentValue = heap[parent] as number;
      if (parentValue <= value) break;
      heap[index] = parentValue;
      index = parent;
    }
    heap[index] = value;
  }

  pop(): number | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    const { length } = heap;
    if (last === undefined || length === 0) return top;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= length) break;
      if (child + 1 < length && (heap[child + 1] as number) < (heap[child] as number)) child++;
      const childValue = heap[child] as number;
      if (childValue >= last) break;
      heap[index] = childValue;
      index = child;
    }
    heap[index] = last;
    return top;
  }
}
