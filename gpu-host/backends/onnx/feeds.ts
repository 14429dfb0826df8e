import type { ModelConfig } from '#gpu-host/models/config.ts';
import { CHOSEN_TOKEN, type Draw, type SequenceInput } from '../backend.ts';
import { allowedWords } from '../check.ts';
import { uniform } from '../draw.ts';
import { windowSizes } from '../positions.ts';
import type { Rotation } from '../rotary.ts';
import { fillBias, HIDDEN, hasBlindInput } from './bias.ts';
import { namedRotations, ROTARY_TABLES, windowBias } from './graph.ts';
import type { KvPool } from './kv-pool.ts';
import { Tensor } from './library.ts';
import type { RunShape } from './packing.ts';
import type { Row } from './rows.ts';
import type { KvSegments } from './segments.ts';

/** One run's inputs, and what its outputs hold. */
export interface RunFeeds {
  readonly feeds: Record<string, Tensor>;
  readonly shape: RunShape;
  /** Number of states that go to the head, member by member. In the output `states` they come before the states of sequences that want no tokens. */
  readonly headRows: number;
  readonly topK: number;
  /** True when a caller wants probabilities, or draws from more tokens than the top ones. */
  readonly wantsSums: boolean;
  /** True when such draws may need all logits of their rows. */
  readonly mayBeOpen: boolean;
  /** True when a caller wants the states that go to the head, or any of the states that follow them. */
  readonly wantsStates: boolean;
  /** True when the head's tokens are cut to allowed ones or their logits change; rows without a mask of their own then allow the whole vocabulary. */
  readonly isMasked: boolean;
  readonly wantsAttention: boolean;
  readonly writes: boolean;
  /** Number of segments that the run reads: either all that exist, or 0. */
  readonly segments: number;
}

/** Fills the graph's inputs from rows. The arrays are kept and reused: feeds are valid until the next call. */
export class FeedBuilder {
  readonly #config: ModelConfig;
  readonly #pool: KvPool;
  /** Tables by the prefix of their names. */
  readonly #rotary: ReadonlyMap<string, RotaryTable>;
  readonly #windows: readonly number[];
  readonly #windowBiases: readonly Growable[];
  readonly #poolTensor: Tensor;
  readonly #noEmbedRows = new Tensor('int64', new BigInt64Array(0), [0, 1]);
  readonly #noEmbeds: Tensor;
  readonly #noMask: Tensor;
  readonly #noChanges = {
    change_places: new Tensor('int64', new BigInt64Array(0), [0, 2]),
    changes: new Tensor('float32', new Float32Array(0), [0]),
  };
  readonly #yes = new Tensor('bool', [true], [1]);
  readonly #no = new Tensor('bool', [false], [1]);
  // The graph takes int32 and int64. Indices are written as uint32 into the same memory, so each `Uint32Array` is copied in one call.
  readonly #tokens = new Growable(4);
  readonly #slots = new Growable(4);
  readonly #positions = new Growable(8);
  readonly #bias = new Growable(4);
  readonly #outRows = new Growable(4);
  readonly #headRows = new Growable(4);
  readonly #masks = new Growable(4);
  readonly #settings = new Growable(4);
  readonly #segments: KvSegments;
  readonly #segmentRows = new Growable(4);
  readonly #rowSegments = new Growable(4);
  readonly #segmentBias = new Growable(4);
  readonly #noSegments: Record<string, Tensor>;
  #rotaryRows = new Map<string, RotaryRows>();
  #rotaryTensors: Record<string, Tensor> = {};

  constructor(config: ModelConfig, pool: KvPool, segments: KvSegments) {
    this.#config = config;
    this.#pool = pool;
    this.#segments = segments;
    this.#noSegments = {
      has_segments: this.#no,
      segment_rows: new Tensor('int32', new Int32Array(0), [0]),
      row_segments: new Tensor('int32', new Int32Array(0), [0, 0]),
      segment_bias: new Tensor('float32', new Float32Array(0), [0, 0, 1]),
      ...segments.feeds(false),
    };
    const rotations = [...new Set(namedRotations(config))].filter((rotation) => rotation !== null);
    this.#rotary = new Map(rotations.map((rotation) => [rotation.prefix, new RotaryTable(config, rotation)]));
    this.#windows = windowSizes(config);
    this.#windowBiases = this.#windows.map(() => new Growable(4));
    this.#poolTensor = new Tensor('float32', pool.data, [pool.planes * pool.slotCount, pool.rowSize]);
    this.#noEmbeds = new Tensor('float32', new Float32Array(0), [0, config.hiddenSize]);
    this.#noMask = new Tensor('uint8', new Uint8Array(0), [0, 4 * allowedWords(config)]);
  }

  build(rows: readonly Row[]): RunFeeds {
    const count = rows.length;
    let tokens = 0;
    let context = 0;
    let needsBlindColumn = false;
    for (const row of rows) {
      tokens = Math.max(tokens, row.tokens);
      context = Math.max(context, row.context);
      if (!needsBlindColumn && mayBeBlind(row))
        needsBlindColumn = row.members.some(({ sequence }) =>
          // A window may hide all that a mask shows.
          this.#windows.length > 0 ? sequence.mask !== 'causal' : hasBlindInput(sequence),
        );
    }
    const width = tokens + context + (needsBlindColumn ? 1 : 0);
    const shape = { tokens, width, blind: needsBlindColumn };
    this.#fillSlots(rows, shape);
    const bias = this.#bias.float32(count * tokens * width);
    fillBias(bias, rows, shape);
    const wantedOutputs = this.#outputs(rows, tokens);
    const hasSegments = rows.some(({ segments }) => segments.length > 0);
    const feeds: Record<string, Tensor> = {
      tokens: this.#fillTokens(rows, tokens),
      ...this.#fillPositions(rows, tokens),
      slots: new Tensor('int32', this.#slots.int32(count * width), [count, width]),
      bias: new Tensor('float32', bias, [count, 1, tokens, width]),
      ...this.#fillWindows(bias, rows, shape),
      pool: this.#poolTensor,
      ...this.#segmentFeeds(rows, hasSegments),
      ...this.#embeds(rows, tokens),
      ...wantedOutputs.feeds,
    };
    return { ...wantedOutputs, feeds, shape, segments: hasSegments ? this.#segments.count : 0 };
  }

  /** The biases of layers with a window: those of the masks, without the keys that lie outside. */
  #fillWindows(bias: Float32Array, rows: readonly Row[], { tokens, width, blind }: RunShape): Record<string, Tensor> {
    const feeds: Record<string, Tensor> = {};
    if (this.#windows.length === 0) return feeds;
    const slots = this.#slots.uint32(rows.length * width);
    const positions = new Float64Array(rows.length * tokens);
    eachMember(rows, tokens, (sequence, first) => {
      positions.set(sequence.positions, first);
    });
    this.#windows.forEach((window, index) => {
      const windowed = this.#windowBiases[index]?.float32(bias.length) ?? new Float32Array(bias.length);
      windowed.set(bias);
      for (let input = 0; input < positions.length; input++) {
        const row = Math.floor(input / tokens);
        const start = input * width;
        let isBlind = true;
        for (let column = 0; column < width; column++) {
          if ((windowed[start + column] as number) < 0) continue;
          const key =
            column < tokens
              ? (positions[row * tokens + column] as number)
              : this.#pool.positions.at(slots[row * width + column] as number);
          if ((positions[input] as number) - key >= window) windowed[start + column] = HIDDEN;
          else isBlind = false;
        }
        if (blind && isBlind) windowed[start + width - 1] = 0;
      }
      feeds[windowBias(window)] = new Tensor('float32', windowed, [rows.length, 1, tokens, width]);
    });
    return feeds;
  }

  #fillTokens(rows: readonly Row[], tokens: number): Tensor {
    const total = rows.length * tokens;
    const ids = this.#tokens.uint32(total);
    ids.fill(0);
    eachMember(rows, tokens, ({ inputs }, first) => {
      if (inputs.kind === 'tokens') ids.set(inputs.tokens, first);
    });
    return new Tensor('int32', this.#tokens.int32(total), [rows.length, tokens]);
  }

  #fillPositions(rows: readonly Row[], tokens: number): Record<string, Tensor> {
    const total = rows.length * tokens;
    // Low words of little-endian int64; the high ones stay zero.
    const words = this.#positions.uint32(total * 2);
    words.fill(0);
    let lastPosition = tokens - 1;
    eachMember(rows, tokens, ({ positions }, first) => {
      for (let t = 0; t < positions.length; t++) {
        if (positions[t] > lastPosition) lastPosition = positions[t];
        words[(first + t) * 2] = positions[t];
      }
    });
    // Positions index the table's rows. In a table of the run's positions alone, row i is the position of input i.
    const isFar = !RotaryTable.keeps(lastPosition);
    const runPositions = isFar ? Uint32Array.from({ length: total }, (_, i) => words[i * 2]) : undefined;
    if (isFar) for (let i = 0; i < total; i++) words[i * 2] = i;
    for (const [prefix, table] of this.#rotary) {
      const rotary = runPositions ? table.tableOf(runPositions) : table.upTo(lastPosition);
      if (rotary === this.#rotaryRows.get(prefix)) continue;
      this.#rotaryRows.set(prefix, rotary);
      const { rows: length, cos, sin, queryCos, querySin } = rotary;
      const values = { cos, sin, query_cos: queryCos, query_sin: querySin };
      for (const name of ROTARY_TABLES)
        this.#rotaryTensors[prefix + name] = new Tensor('float32', values[name], [length, this.#config.rotaryDim / 2]);
    }
    const positions = new Tensor('int64', this.#positions.int64(total), [rows.length, tokens]);
    return { positions, ...this.#rotaryTensors };
  }

  /** Columns: the row's own inputs (null slots, whose keys and values the graph overwrites), its context, padding. */
  #fillSlots(rows: readonly Row[], { tokens, width }: RunShape): void {
    const slots = this.#slots.uint32(rows.length * width);
    const { nullSlot } = this.#pool;
    rows.forEach(({ members, context, shared, slots: linkedSlots }, r) => {
      const start = r * width;
      const columns = start + tokens;
      slots.fill(nullSlot, start, columns);
      if (linkedSlots !== null) slots.set(linkedSlots, columns);
      else {
        slots.set(members[0].sequence.context, columns);
        for (let i = 1; i < members.length; i++) {
          slots.set(members[i].sequence.context.subarray(shared), columns + members[i].firstOwn);
        }
      }
      slots.fill(nullSlot, columns + context, start + width);
    });
  }

  #segmentFeeds(rows: readonly Row[], hasSegments: boolean): Record<string, Tensor> {
    if (!hasSegments) return this.#noSegments;
    const { count } = this.#segments;
    const maxSegments = rows.reduce((most, { segments }) => Math.max(most, segments.length), 0);
    const cellCount = rows.length * maxSegments;
    const segmentRows = this.#segmentRows.int32(count).fill(0);
    // Cells past a row's last segment stay at segment 0; the bias hides the slots of that segment.
    const rowSegments = this.#rowSegments.int32(cellCount).fill(0);
    const bias = this.#segmentBias.float32(cellCount).fill(HIDDEN);
    rows.forEach(({ segments }, r) => {
      segments.forEach((segment, i) => {
        segmentRows[segment] = r;
        rowSegments[r * maxSegments + i] = segment;
        bias[r * maxSegments + i] = 0;
      });
    });
    return {
      has_segments: this.#yes,
      segment_rows: new Tensor('int32', segmentRows, [count]),
      row_segments: new Tensor('int32', rowSegments, [rows.length, maxSegments]),
      segment_bias: new Tensor('float32', bias, [rows.length, maxSegments, 1]),
      ...this.#segments.feeds(true),
    };
  }

  #embeds(rows: readonly Row[], tokens: number): Record<string, Tensor> {
    let count = 0;
    eachMember(rows, tokens, ({ inputs, positions }) => {
      if (inputs.kind === 'embeds') count += positions.length;
    });
    if (count === 0) return { embed_rows: this.#noEmbedRows, embeds: this.#noEmbeds };
    const { hiddenSize } = this.#config;
    const embeds = new Float32Array(count * hiddenSize);
    const indices = new BigInt64Array(count);
    let nextIndex = 0;
    eachMember(rows, tokens, ({ inputs, positions }, first) => {
      if (inputs.kind !== 'embeds') return;
      embeds.set(inputs.embeds, nextIndex * hiddenSize);
      for (let t = 0; t < positions.length; t++) indices[nextIndex++] = BigInt(first + t);
    });
    return {
      embed_rows: new Tensor('int64', indices, [count, 1]),
      embeds: new Tensor('float32', embeds, [count, hiddenSize]),
    };
  }

  #outputs(rows: readonly Row[], tokens: number) {
    let headRows = 0;
    let stateRows = 0;
    let topK = 1;
    let wantsSums = false;
    let wantsStates = false;
    let isMasked = false;
    let wantsAttention = false;
    let hasWrites = false;
    eachMember(rows, tokens, (sequence) => {
      const { output } = sequence;
      if (sequence.writes.length > 0) hasWrites = true;
      if (sequence.attention === true) wantsAttention = true;
      if (output.kind === 'states') stateRows += output.rows;
      if (output.kind !== 'top') return;
      headRows += output.rows;
      topK = Math.max(topK, output.topK);
      if (output.tokensOnly !== true && output.draws === undefined) wantsSums = true;
      if (output.states === true) wantsStates = true;
      if (output.allowed !== undefined || output.changes !== undefined) isMasked = true;
    });
    const outRows = this.#outRows.uint32(headRows + stateRows);
    let nextTop = 0;
    let nextState = headRows;
    eachMember(rows, tokens, ({ output, positions }, first) => {
      if (output.kind === 'none') return;
      for (let t = positions.length - output.rows; t < positions.length; t++) {
        if (output.kind === 'top') outRows[nextTop++] = first + t;
        else outRows[nextState++] = first + t;
      }
    });
    const headOrder = this.#headRows.uint32(headRows);
    for (let i = 0; i < headRows; i++) headOrder[i] = i;
    topK = Math.min(topK, this.#config.vocabularySize);
    const settings = this.#rowSettings(rows, headRows, topK);
    const mayBeOpen = topK < this.#config.vocabularySize && hasShares(settings);
    wantsSums ||= mayBeOpen;
    return {
      headRows,
      topK,
      wantsSums,
      mayBeOpen,
      wantsStates: wantsStates || stateRows > 0,
      isMasked,
      wantsAttention,
      writes: hasWrites,
      feeds: {
        out_rows: new Tensor('int32', this.#outRows.int32(headRows + stateRows), [headRows + stateRows]),
        head_rows: new Tensor('int32', this.#headRows.int32(headRows), [headRows]),
        top_k: new Tensor('int64', BigInt64Array.of(BigInt(topK)), [1]),
        has_head: headRows > 0 && !isMasked ? this.#yes : this.#no,
        wants_sums: wantsSums && !isMasked ? this.#yes : this.#no,
        row_settings: new Tensor('float32', settings, [headRows, 3]),
        is_masked: isMasked ? this.#yes : this.#no,
        wants_attention: wantsAttention ? this.#yes : this.#no,
        allowed: isMasked ? this.#allowed(rows, headRows) : this.#noMask,
        ...(isMasked ? this.#changes(rows) : this.#noChanges),
      },
    };
  }

  /** Inverse temperature, share and floor of each head row, as the graph's `row_settings`. */
  #rowSettings(rows: readonly Row[], headRows: number, listed: number): Float32Array {
    const settings = this.#settings.float32(3 * headRows);
    let next = 0;
    eachMember(rows, 0, ({ output }) => {
      if (output.kind !== 'top') return;
      for (let row = 0; row < output.rows; row++) {
        const draw = output.draws?.[row];
        settings[next++] = draw ? Math.min(MAX_INVERSE_TEMPERATURE, 1 / draw.temperature) : 1;
        settings[next++] = draw ? neededShare(draw, listed) : 0;
        settings[next++] = draw?.topK === 0 ? draw.minP : 0;
      }
    });
    return settings;
  }

  /** The changes of all head rows' logits. */
  #changes(rows: readonly Row[]): Record<string, Tensor> {
    const places: bigint[] = [];
    const values: number[] = [];
    let headRow = 0n;
    eachMember(rows, 0, ({ output }) => {
      if (output.kind !== 'top') return;
      output.changes?.tokens.forEach((token, i) => {
        places.push(headRow, BigInt((token & ~CHOSEN_TOKEN) >>> 0));
        values.push(output.changes?.values[i] ?? 0);
      });
      headRow += BigInt(output.rows);
    });
    return {
      change_places: new Tensor('int64', BigInt64Array.from(places), [values.length, 2]),
      changes: new Tensor('float32', Float32Array.from(values), [values.length]),
    };
  }

  /** The token masks of all head rows, as bytes: the words are little-endian, so bit `t % 8` of byte `t / 8` is token t. */
  #allowed(rows: readonly Row[], headRows: number): Tensor {
    const words = allowedWords(this.#config);
    const masks = this.#masks.uint32(headRows * words);
    let next = 0;
    eachMember(rows, 0, ({ output }) => {
      if (output.kind !== 'top') return;
      const end = next + output.rows * words;
      if (output.allowed === undefined) masks.fill(0xffffffff, next, end);
      else masks.set(output.allowed, next);
      next = end;
    });
    const bytes = new Uint8Array(masks.buffer, masks.byteOffset, masks.byteLength);
    return new Tensor('uint8', bytes, [headRows, 4 * words]);
  }
}

/** Largest inverse temperature: an infinite one would make the power of the largest logit NaN. */
const MAX_INVERSE_TEMPERATURE = 3e38;
/** Factor that makes a row's share larger than needed. The graph's 32-bit sums differ from sums of 64 bits by less. */
const SHARE_MARGIN = 1.0001;

/**
 * The share of a row's weight that its `listed` top tokens must have so that they decide a draw: up to top-p's cut, or else up to the random number.
 * They never suffice where top-k or min-p cuts behind them, because only all logits tell the weight that such a cut keeps.
 */
function neededShare({ topK, topP, minP, seed, position }: Draw, listed: number): number {
  if (topK > 0) return topK > listed ? Number.POSITIVE_INFINITY : 0;
  if (topP < 1) return SHARE_MARGIN * topP;
  // Above 0 even for a random number of 0: a run without shares has no sums.
  return minP > 0 ? Number.POSITIVE_INFINITY : SHARE_MARGIN * Math.max(2 ** -53, uniform(seed, position));
}

function hasShares(settings: Float32Array): boolean {
  for (let share = 1; share < settings.length; share += 3) if (settings[share] > 0) return true;
  return false;
}

/** False for a row whose masks are all causal, because its members share a prefix or were dealt to it: a causal input sees itself. */
function mayBeBlind({ members, slots }: Row): boolean {
  return members.length === 1 || slots !== null;
}

/** Visits every member with the flat index of its first input. */
function eachMember(
  rows: readonly Row[],
  tokens: number,
  visit: (sequence: SequenceInput, firstInput: number) => void,
): void {
  for (let r = 0; r < rows.length; r++) {
    for (const { sequence, firstInput } of rows[r].members) visit(sequence, r * tokens + firstInput);
  }
}

/** A reused buffer that grows by doubling. Each method returns a view from the buffer's start; growth drops the content. */
class Growable {
  readonly #elementBytes: number;
  #buffer = new ArrayBuffer(1024);

  constructor(elementBytes: number) {
    this.#elementBytes = elementBytes;
  }

  uint32(length: number): Uint32Array {
    return new Uint32Array(this.#ensure((length * 4) / this.#elementBytes), 0, length);
  }

  int32(length: number): Int32Array {
    return new Int32Array(this.#ensure(length), 0, length);
  }

  float32(length: number): Float32Array {
    return new Float32Array(this.#ensure(length), 0, length);
  }

  int64(length: number): BigInt64Array {
    return new BigInt64Array(this.#ensure(length), 0, length);
  }

  #ensure(elements: number): ArrayBuffer {
    const bytes = elements * this.#elementBytes;
    if (this.#buffer.byteLength < bytes) {
      let size = this.#buffer.byteLength;
      while (size < bytes) size *= 2;
      this.#buffer = new ArrayBuffer(size);
    }
    return this.#buffer;
  }
}

/** The kept table does not grow for positions from here on. A call with such positions, up to 2³² apart, gets a table of its positions alone. */
const MAX_KEPT_POSITIONS = 1 << 17;

/** Cosines and sines, `rows × rotaryDim / 2` each; the ones for queries are multiplied by the attention's scale. */
interface RotaryRows {
  readonly rows: number;
  readonly cos: Float32Array;
  readonly sin: Float32Array;
  readonly queryCos: Float32Array;
  readonly querySin: Float32Array;
}

/** Cosines and sines of positions, grown when a later position is first seen. */
class RotaryTable {
  readonly #rotation: Rotation;
  readonly #attentionScale: number;
  #table: RotaryRows;

  constructor({ contextLength, attentionScale }: ModelConfig, rotation: Rotation) {
    this.#rotation = rotation;
    this.#attentionScale = attentionScale;
    this.#table = this.#compute(Uint32Array.from({ length: Math.min(contextLength, 4096) }, (_, i) => i));
  }

  /** True when a table up to this position is small enough to be kept. */
  static keeps(position: number): boolean {
    return position < MAX_KEPT_POSITIONS;
  }

  /** The table whose row p is position p. */
  upTo(position: number): RotaryRows {
    let rows = this.#table.rows;
    while (rows <= position) rows *= 2;
    if (rows > this.#table.rows) this.#table = this.#compute(Uint32Array.from({ length: rows }, (_, i) => i));
    return this.#table;
  }

  /** A table with one row per given position, in the same order. */
  tableOf(positions: Uint32Array): RotaryRows {
    return this.#compute(positions);
  }

  #compute(positions: Uint32Array): RotaryRows {
    const { frequencies, scale } = this.#rotation;
    const half = frequencies.length;
    const cos = new Float32Array(positions.length * half);
    const sin = new Float32Array(positions.length * half);
    const queryCos = new Float32Array(positions.length * half);
    const querySin = new Float32Array(positions.length * half);
    const queryScale = scale * this.#attentionScale;
    for (let row = 0; row < positions.length; row++) {
      for (let i = 0; i < half; i++) {
        const angle = positions[row] * frequencies[i];
        const index = row * half + i;
        cos[index] = Math.cos(angle) * scale;
        sin[index] = Math.sin(angle) * scale;
        queryCos[index] = Math.cos(angle) * queryScale;
        querySin[index] = Math.sin(angle) * queryScale;
      }
    }
    return { rows: positions.length, cos, sin, queryCos, querySin };
  }
}
