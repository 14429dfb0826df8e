import { Tensor } from 'onnxruntime-node';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput } from '../backend.ts';
import type { KvPool } from './kv-pool.ts';
import type { RotaryRows, RotaryTable } from './rotary-table.ts';
import type { Row } from './rows.ts';

/** Added to the score of a key that must not be seen. Finite, so that a row that sees nothing at all has no NaN. */
const HIDDEN = -1e30;

/** One run's inputs and where each member's wanted states will be. */
export interface RunFeeds {
  readonly feeds: Record<string, Tensor>;
  /** Inputs per row, padded. */
  readonly tokens: number;
  /** States that go to the head, member by member; they come first in `states`. */
  readonly headRows: number;
  /** States that are wanted as they are, after those. */
  readonly stateRows: number;
  readonly topK: number;
  readonly wantsLogSum: boolean;
}

/** Fills the graph's inputs from rows. The arrays are kept and reused: feeds are valid until the next call. */
export class FeedBuilder {
  readonly #config: ModelConfig;
  readonly #pool: KvPool;
  readonly #rotary: RotaryTable;
  readonly #poolTensor: Tensor;
  readonly #noEmbedRows = new Tensor('int64', new BigInt64Array(0), [0, 1]);
  readonly #noEmbeds: Tensor;
  readonly #yes = new Tensor('bool', [true], [1]);
  readonly #no = new Tensor('bool', [false], [1]);
  /** Tensors are int32 and int64; indices are written as uint32 into the same memory, which copies `Uint32Array`s whole. */
  readonly #tokens = new Growable(4);
  readonly #slots = new Growable(4);
  readonly #positions = new Growable(8);
  readonly #bias = new Growable(4);
  readonly #outRows = new Growable(4);
  readonly #headRows = new Growable(4);
  #rotaryRows: RotaryRows | null = null;
  #cos: Tensor | null = null;
  #sin: Tensor | null = null;

  constructor(config: ModelConfig, pool: KvPool, rotary: RotaryTable) {
    this.#config = config;
    this.#pool = pool;
    this.#rotary = rotary;
    this.#poolTensor = new Tensor('float32', pool.data, [pool.planes * pool.slotCount, pool.rowSize]);
    this.#noEmbeds = new Tensor('float32', new Float32Array(0), [0, config.hiddenSize]);
  }

  build(rows: readonly Row[]): RunFeeds {
    const count = rows.length;
    let tokens = 0;
    let context = 0;
    let blind = false;
    for (const row of rows) {
      tokens = Math.max(tokens, row.tokens);
      context = Math.max(context, row.context);
      if (row.members.length === 1 && hasBlindInput(row.members[0].sequence)) blind = true;
    }
    // An input that sees nothing attends to the null slot, whose value is zero, in a column of its own.
    const width = tokens + context + (blind ? 1 : 0);
    this.#fillSlots(rows, tokens, width);
    this.#fillBias(rows, tokens, width, blind);
    const wanted = this.#outputs(rows, tokens);
    const feeds: Record<string, Tensor> = {
      tokens: this.#fillTokens(rows, tokens),
      ...this.#fillPositions(rows, tokens),
      slots: new Tensor('int32', this.#slots.int32(count * width), [count, width]),
      bias: new Tensor('float32', this.#bias.float32(count * tokens * width), [count, 1, tokens, width]),
      pool: this.#poolTensor,
      ...this.#embeds(rows, tokens),
      ...wanted.feeds,
    };
    return { ...wanted, feeds, tokens };
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
    let last = tokens - 1;
    eachMember(rows, tokens, ({ positions }, first) => {
      for (let t = 0; t < positions.length; t++) {
        if (positions[t] > last) last = positions[t];
        words[(first + t) * 2] = positions[t];
      }
    });
    let rotary = this.#rotary.upTo(last);
    if (rotary === null) {
      const own = Uint32Array.from({ length: total }, (_, i) => words[i * 2]);
      rotary = this.#rotary.tableOf(own);
      for (let i = 0; i < total; i++) words[i * 2] = i;
    }
    if (rotary !== this.#rotaryRows || this.#cos === null || this.#sin === null) {
      const dims = [rotary.rows, this.#config.headDim / 2];
      this.#cos = new Tensor('float32', rotary.cos, dims);
      this.#sin = new Tensor('float32', rotary.sin, dims);
      this.#rotaryRows = rotary;
    }
    const positions = new Tensor('int64', this.#positions.int64(total), [rows.length, tokens]);
    return { positions, cos: this.#cos, sin: this.#sin };
  }

  /** Columns: the row's own inputs (the null slot, written over), its context, padding. */
  #fillSlots(rows: readonly Row[], tokens: number, width: number): void {
    const slots = this.#slots.uint32(rows.length * width);
    const { nullSlot } = this.#pool;
    rows.forEach(({ members, context, shared }, r) => {
      const start = r * width;
      const columns = start + tokens;
      slots.fill(nullSlot, start, columns);
      slots.set(members[0].sequence.context, columns);
      for (let i = 1; i < members.length; i++) {
        slots.set(members[i].sequence.context.subarray(shared), columns + members[i].firstOwn);
      }
      slots.fill(nullSlot, columns + context, start + width);
    });
  }

  #fillBias(rows: readonly Row[], tokens: number, width: number, blind: boolean): void {
    const bias = this.#bias.float32(rows.length * tokens * width);
    rows.forEach((row, r) => {
      for (const { sequence, firstInput, firstOwn } of row.members) {
        const { mask, positions, context } = sequence;
        const ownEnd = firstOwn + context.length - row.shared;
        for (let t = 0; t < positions.length; t++) {
          const start = (r * tokens + firstInput + t) * width;
          if (mask !== 'causal') {
            fillMaskRow(bias, start, mask, t, positions.length, context.length, tokens, width, blind);
            continue;
          }
          const columns = start + tokens;
          if (row.members.length > 1 || tokens > 1) {
            bias.fill(HIDDEN, start, columns);
            bias.fill(HIDDEN, columns + row.shared, columns + firstOwn);
          }
          bias.fill(0, start + firstInput, start + firstInput + t + 1);
          bias.fill(0, columns, columns + row.shared);
          bias.fill(0, columns + firstOwn, columns + ownEnd);
          bias.fill(HIDDEN, columns + ownEnd, start + width);
        }
      }
      // Padded inputs: whatever they compute is dropped, but it must stay finite.
      bias.fill(0, (r * tokens + row.tokens) * width, (r + 1) * tokens * width);
    });
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
    let next = 0;
    eachMember(rows, tokens, ({ inputs, positions }, first) => {
      if (inputs.kind !== 'embeds') return;
      embeds.set(inputs.embeds, next * hiddenSize);
      for (let t = 0; t < positions.length; t++) indices[next++] = BigInt(first + t);
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
    let wantsLogSum = false;
    eachMember(rows, tokens, ({ output }) => {
      if (output.kind === 'states') stateRows += output.rows;
      if (output.kind !== 'top') return;
      headRows += output.rows;
      topK = Math.max(topK, output.topK);
      if (output.tokensOnly !== true) wantsLogSum = true;
    });
    const outRows = this.#outRows.uint32(headRows + stateRows);
    let top = 0;
    let state = headRows;
    eachMember(rows, tokens, ({ output, positions }, first) => {
      if (output.kind === 'none') return;
      for (let t = positions.length - output.rows; t < positions.length; t++) {
        if (output.kind === 'top') outRows[top++] = first + t;
        else outRows[state++] = first + t;
      }
    });
    const ordered = this.#headRows.uint32(headRows);
    for (let i = 0; i < headRows; i++) ordered[i] = i;
    topK = Math.min(topK, this.#config.vocabularySize);
    return {
      headRows,
      stateRows,
      topK,
      wantsLogSum,
      feeds: {
        out_rows: new Tensor('int32', this.#outRows.int32(headRows + stateRows), [headRows + stateRows]),
        head_rows: new Tensor('int32', this.#headRows.int32(headRows), [headRows]),
        top_k: new Tensor('int64', BigInt64Array.of(BigInt(topK)), [1]),
        has_head: headRows > 0 ? this.#yes : this.#no,
        wants_log_sum: wantsLogSum ? this.#yes : this.#no,
      },
    };
  }
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

/** One row of an explicit mask, from its order (context, inputs) to the graph's (inputs, context, padding). */
function fillMaskRow(
  bias: Float32Array,
  start: number,
  mask: Uint8Array,
  row: number,
  inputs: number,
  context: number,
  tokens: number,
  width: number,
  blind: boolean,
): void {
  const from = row * (context + inputs);
  let seen = false;
  bias.fill(HIDDEN, start, start + width);
  for (let j = 0; j < context; j++) {
    if (mask[from + j] === 0) continue;
    bias[start + tokens + j] = 0;
    seen = true;
  }
  for (let j = 0; j < inputs; j++) {
    if (mask[from + context + j] === 0) continue;
    bias[start + j] = 0;
    seen = true;
  }
  if (blind && !seen) bias[start + width - 1] = 0;
}

function hasBlindInput({ mask, positions, context }: SequenceInput): boolean {
  if (mask === 'causal') return false;
  const width = context.length + positions.length;
  for (let row = 0; row < positions.length; row++) {
    if (!mask.subarray(row * width, (row + 1) * width).some((seen) => seen !== 0)) return true;
  }
  return false;
}

/** One buffer that grows by doubling, seen through views of the length that is asked for. */
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
