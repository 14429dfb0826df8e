import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput } from '../backend.ts';
import type { KvPool } from './kv-pool.ts';
import { Tensor } from './library.ts';
import type { RunCosts } from './packing.ts';
import { SEGMENT_SLOTS } from './packing.ts';
import type { Row } from './rows.ts';

/** Maximum bytes of all segments of a model, 256 MiB. A segment takes as many bytes as the keys and values that it copies. */
const MAX_BYTES = 1 << 28;
/** A segment that no run has read for this many batches makes room for another. */
const KEPT_BATCHES = 8;
/** Maximum bytes of segments filled after one batch, 32 MiB: to copy them takes the thread about 10 ms. */
const MAX_FILL_BYTES = 1 << 25;
/** Maximum segments moved before one batch, so that moves do not delay it. */
const MAX_MOVES = 8;
const NO_SEGMENTS: readonly number[] = [];

/** The segments in which a batch's decode steps find the beginnings of their contexts. */
export interface FoundSegments {
  /** For each sequence of the batch, its segments in order; no two sequences share a segment. */
  readonly bySequence: readonly (readonly number[])[];
  /** Segments in memory. A run reads all of them, whether or not its rows use them. */
  readonly count: number;
}

/**
 * Copies of the keys and values of contexts that decode steps read again and again. The pool scatters a context over slots: a run that gathers them
 * copies the whole context in every step and layer. A segment is ordered head by head instead, so that the attention reads it in place. The pool
 * stays the source of truth.
 *
 * A segment holds {@link SEGMENT_SLOTS} successive slots of a context as they were when the segment was filled. It serves any context that has the
 * same slots at an index that is a multiple of SEGMENT_SLOTS, while the pool's version numbers of these slots stay the same. A write, copy or swap
 * of a slot changes its number, so it invalidates the slot's segments without a notification. Segments in use lie at the beginning of each plane's
 * memory, because a run reads one contiguous part. (A plane holds the keys, or the values, of one layer.)
 */
export class KvSegments {
  readonly #config: ModelConfig;
  readonly #pool: KvPool;
  readonly #costs: RunCosts;
  readonly #capacity: number;
  /** For each plane of the pool, all segments, `kvHeads × SEGMENT_SLOTS × headDim` each. The system provides memory for the written parts only. */
  readonly #planes: readonly Float32Array[];
  /** Values of a segment in one plane. */
  readonly #segmentSize: number;
  /** Maximum segments filled after one batch. */
  readonly #maxFills: number;
  #count = 0;
  #batch = 0;
  /** For each segment, its slots and the versions that they had when it was filled. */
  readonly #slots: Uint32Array;
  readonly #versions: Float64Array;
  /** Number of the batch that used each segment last. */
  readonly #lastUsed: Float64Array;
  /** Linked lists of the segments with the same last slot: each slot's first segment, and each segment's next one; -1 ends a list. */
  readonly #endingAt: Int32Array;
  readonly #nextSameEnd: Int32Array;
  /**
   * For each slot, the number of the last batch in which a causal sequence stored its inputs' keys and had the slot at the end of a segment: a later
   * step probably continues the context of that sequence.
   */
  readonly #lastExpected: Float64Array;
  /** Index at which the search for a stale segment continues. */
  #hand = 0;

  constructor(config: ModelConfig, pool: KvPool, costs: RunCosts) {
    this.#config = config;
    this.#pool = pool;
    this.#costs = costs;
    this.#segmentSize = SEGMENT_SLOTS * pool.rowSize;
    const bytes = this.#segmentSize * pool.planes * Float32Array.BYTES_PER_ELEMENT;
    this.#maxFills = Math.max(1, Math.floor(MAX_FILL_BYTES / bytes));
    // Segments are seen whole, and their scores are not capped.
    const isUsable = config.windows.length === 0 && config.attentionSoftcap === null;
    this.#capacity = isUsable ? Math.min(Math.floor(MAX_BYTES / bytes), Math.floor(pool.nullSlot / SEGMENT_SLOTS)) : 0;
    this.#planes = Array.from({ length: pool.planes }, () => new Float32Array(this.#capacity * this.#segmentSize));
    this.#slots = new Uint32Array(this.#capacity * SEGMENT_SLOTS);
    this.#versions = new Float64Array(this.#capacity * SEGMENT_SLOTS);
    this.#lastUsed = new Float64Array(this.#capacity);
    this.#nextSameEnd = new Int32Array(this.#capacity);
    this.#endingAt = new Int32Array(pool.slotCount).fill(-1);
    this.#lastExpected = new Float64Array(pool.slotCount).fill(Number.NEGATIVE_INFINITY);
  }

  /** Finds the segments of a batch's decode steps; null when there are none. The segments stay in place until {@link learn}. */
  find(batch: readonly SequenceInput[]): FoundSegments | null {
    this.#batch++;
    if (this.#count === 0) return null;
    this.#compact();
    const takenSegments = new Set<number>();
    const segmentsBySequence = batch.map((sequence) =>
      isStep(sequence) ? this.#segmentsOf(sequence.context, takenSegments) : NO_SEGMENTS,
    );
    if (takenSegments.size === 0) return null;
    for (const segment of takenSegments) this.#lastUsed[segment] = this.#batch;
    return { bySequence: segmentsBySequence, count: this.#count };
  }

  /** Keys and values of all segments, as inputs of the graph. */
  feeds(isUsed: boolean): Record<string, Tensor> {
    const { kvHeads, headDim } = this.#config;
    const count = isUsed ? this.#count : 0;
    const feeds: Record<string, Tensor> = {};
    this.#planes.forEach((data, plane) => {
      const view = data.subarray(0, count * this.#segmentSize);
      feeds[segmentInput(plane)] = new Tensor('float32', view, [count, kvHeads, SEGMENT_SLOTS, headDim]);
    });
    return feeds;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Fills segments after a batch, for its decode steps that continue earlier calls. Rows whose members share or link context slots get none. Nothing
   * is filled unless segments would save these steps more than a run over segments costs.
   * @param foundSegments what {@link find} returned for the batch
   */
  learn(batch: readonly SequenceInput[], foundSegments: FoundSegments | null, runs: readonly (readonly Row[])[]): void {
    const steps: { readonly context: Uint32Array; readonly heldSegments: number }[] = [];
    let wantedSegments = 0;
    for (const rows of runs) {
      for (const { members, shared, slots } of rows) {
        if (slots !== null || (members.length > 1 && shared > 0)) continue;
        for (const { index } of members) {
          if (!isStep(batch[index])) continue;
          const { context } = batch[index];
          steps.push({ context, heldSegments: foundSegments?.bySequence[index].length ?? 0 });
          wantedSegments += Math.floor(context.length / SEGMENT_SLOTS);
        }
      }
    }
    const { perColumn, perSegment, perSegmentRun } = this.#costs;
    if (wantedSegments * (SEGMENT_SLOTS * perColumn - perSegment) > perSegmentRun) this.#fill(steps);
    for (const sequence of batch) this.#expect(sequence);
  }

  #fill(steps: readonly { readonly context: Uint32Array; readonly heldSegments: number }[]): void {
    let remainingFills = this.#maxFills;
    for (const { context, heldSegments } of steps) {
      for (let end = (heldSegments + 1) * SEGMENT_SLOTS; end <= context.length; end += SEGMENT_SLOTS) {
        if (this.#lastExpected[context[end - 1]] < this.#batch - KEPT_BATCHES) break;
        if (remainingFills-- === 0) return;
        const segment = this.#allocate();
        if (segment === null) return;
        this.#copyIn(segment, context.subarray(end - SEGMENT_SLOTS, end));
      }
    }
  }

  #expect({ context, mask, writes }: SequenceInput): void {
    if (mask !== 'causal' || writes.length === 0) return;
    const length = context.length + writes.length;
    for (let end = SEGMENT_SLOTS; end <= length; end += SEGMENT_SLOTS) {
      const slot = end <= context.length ? context[end - 1] : writes[end - 1 - context.length];
      this.#lastExpected[slot] = this.#batch;
    }
  }

  #segmentsOf(context: Uint32Array, takenSegments: Set<number>): readonly number[] {
    const segments: number[] = [];
    for (let start = 0; start + SEGMENT_SLOTS <= context.length; start += SEGMENT_SLOTS) {
      let segment = this.#endingAt[context[start + SEGMENT_SLOTS - 1]];
      while (segment >= 0 && (takenSegments.has(segment) || !this.#holds(segment, context, start)))
        segment = this.#nextSameEnd[segment];
      if (segment < 0) break;
      takenSegments.add(segment);
      segments.push(segment);
    }
    return segments;
  }

  #holds(segment: number, context: Uint32Array, start: number): boolean {
    const offset = segment * SEGMENT_SLOTS;
    const { versions } = this.#pool;
    for (let i = 0; i < SEGMENT_SLOTS; i++) {
      const slot = context[start + i];
      if (this.#slots[offset + i] !== slot || this.#versions[offset + i] !== versions[slot]) return false;
    }
    return true;
  }

  /** The index for a new segment: that of a stale one, or a further one; null when all segments are in use. */
  #allocate(): number | null {
    for (let tried = 0; tried < this.#count; tried++) {
      this.#hand = (this.#hand + 1) % this.#count;
      if (!this.#isStale(this.#hand)) continue;
      this.#unlink(this.#hand);
      return this.#hand;
    }
    return this.#count < this.#capacity ? this.#count++ : null;
  }

  #copyIn(segment: number, slots: Uint32Array): void {
    const { data, slotCount, rowSize, versions } = this.#pool;
    const { kvHeads, headDim } = this.#config;
    const offset = segment * SEGMENT_SLOTS;
    this.#planes.forEach((into, plane) => {
      for (let i = 0; i < SEGMENT_SLOTS; i++) {
        const row = (plane * slotCount + slots[i]) * rowSize;
        for (let head = 0; head < kvHeads; head++) {
          const source = row + head * headDim;
          const destination = ((segment * kvHeads + head) * SEGMENT_SLOTS + i) * headDim;
          into.set(data.subarray(source, source + headDim), destination);
        }
      }
    });
    for (let i = 0; i < SEGMENT_SLOTS; i++) {
      this.#slots[offset + i] = slots[i];
      this.#versions[offset + i] = versions[slots[i]];
    }
    this.#lastUsed[segment] = this.#batch;
    this.#link(segment);
  }

  /** Drops stale segments at the end, and moves the last segments into the places of stale ones before them. */
  #compact(): void {
    let remainingMoves = MAX_MOVES;
    for (let segment = 0; segment < this.#count; segment++) {
      while (this.#count > segment && this.#isStale(this.#count - 1)) this.#unlink(--this.#count);
      if (segment >= this.#count - 1 || !this.#isStale(segment)) continue;
      if (remainingMoves-- === 0) return;
      this.#unlink(segment);
      this.#move(--this.#count, segment);
    }
  }

  #move(from: number, to: number): void {
    this.#unlink(from);
    for (const plane of this.#planes)
      plane.copyWithin(to * this.#segmentSize, from * this.#segmentSize, (from + 1) * this.#segmentSize);
    const start = from * SEGMENT_SLOTS;
    this.#slots.copyWithin(to * SEGMENT_SLOTS, start, start + SEGMENT_SLOTS);
    this.#versions.copyWithin(to * SEGMENT_SLOTS, start, start + SEGMENT_SLOTS);
    this.#lastUsed[to] = this.#lastUsed[from];
    this.#link(to);
  }

  /** True when no batch has found or filled the segment for `KEPT_BATCHES` batches. */
  #isStale(segment: number): boolean {
    return this.#lastUsed[segment] < this.#batch - KEPT_BATCHES;
  }

  #lastSlot(segment: number): number {
    return this.#slots[(segment + 1) * SEGMENT_SLOTS - 1];
  }

  #link(segment: number): void {
    const slot = this.#lastSlot(segment);
    this.#nextSameEnd[segment] = this.#endingAt[slot];
    this.#endingAt[slot] = segment;
  }

  #unlink(segment: number): void {
    const slot = this.#lastSlot(segment);
    if (this.#endingAt[slot] === segment) {
      this.#endingAt[slot] = this.#nextSameEnd[segment];
      return;
    }
    let previous = this.#endingAt[slot];
    while (this.#nextSameEnd[previous] !== segment) previous = this.#nextSameEnd[previous];
    this.#nextSameEnd[previous] = this.#nextSameEnd[segment];
  }
}

/** Name of the graph's input with the segments of one plane of the pool. */
export function segmentInput(plane: number): string {
  return `segments.${plane}`;
}

/** True for a sequence that may read segments: one input that sees its whole context. */
function isStep({ positions, mask, attention }: SequenceInput): boolean {
  return positions.length === 1 && mask === 'causal' && attention !== true;
}
