import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput } from '../backend.ts';
import { windowSizes } from '../positions.ts';
import type { GroupShape, StepGraph, StepShape } from './graph.ts';
import type { Ggml } from './library.ts';
import type { KvPool } from './pool.ts';
import { ROTATION_SPAN } from './weights.ts';

/** Bits of a float16: zero, and -Infinity. */
const VISIBLE = 0;
const HIDDEN = 0xfc00;

/** Fewest columns of a group, and the least distance between two numbers of columns. */
const COLUMN_STEP = 32;
/** Part by which a group's inputs may be padded so that its graph is aligned. */
const ALIGNED_PADDING = 9 / 8;

/** A sequence in its place in a step. */
interface Member {
  readonly sequence: SequenceInput;
  /** Index in the batch. */
  readonly index: number;
  /** Flat row of its first input. */
  firstInput: number;
  group: number;
  /** Its row in the group. */
  row: number;
  /** First of its output rows; sequences that want logits come first. */
  firstOutput: number;
}

/** A batch in the form of a graph's inputs. Every buffer has the size that the shape implies. */
export class StepPlan {
  readonly shape: StepShape;
  readonly members: readonly Member[];
  readonly #pool: KvPool;
  readonly #hiddenSize: number;
  readonly #windows: readonly number[];

  constructor(batch: readonly SequenceInput[], pool: KvPool, config: ModelConfig) {
    this.#pool = pool;
    this.#hiddenSize = config.hiddenSize;
    this.#windows = windowSizes(config);
    const members = batch.map(
      (sequence, index): Member => ({ sequence, index, firstInput: 0, group: 0, row: 0, firstOutput: 0 }),
    );
    this.members = members;
    const groups = groupsOf(members);
    const inputs = batch.reduce((sum, { positions }) => sum + positions.length, 0);
    const [first] = groups;
    const aligned =
      groups.length === 1 &&
      first !== undefined &&
      first.rows * first.queries <= Math.max(paddedInputs(inputs), inputs * ALIGNED_PADDING);
    let nextInput = 0;
    for (const member of members) {
      member.firstInput = aligned ? member.row * (first?.queries ?? 0) : nextInput;
      nextInput += member.sequence.positions.length;
    }
    const logitRows = placeOutputs(members, 0, ({ output }) => output.kind === 'top');
    const outputs = placeOutputs(members, logitRows, ({ output }) => output.kind === 'states');
    const positions = batch.flatMap((sequence) => largest(sequence.positions));
    this.shape = {
      inputs: aligned && first !== undefined ? first.rows * first.queries : paddedInputs(inputs),
      groups,
      aligned,
      outputs: paddedRows(outputs),
      logitRows: outputs === logitRows ? paddedRows(logitRows) : logitRows,
      embeds: batch.some((sequence) => sequence.inputs.kind === 'embeds'),
      far: positions.some((position) => position >= ROTATION_SPAN),
      received: batch.some(({ attention }) => attention === true),
    };
  }

  /** Sets all inputs of a graph of this plan's shape. ggml uses their memory for other values once they are read, so each step sets all of them. */
  feed(ggml: Ggml, graph: StepGraph): void {
    const { functions } = ggml;
    const set = (tensor: bigint | undefined, values: ArrayBufferView | undefined) => {
      if (tensor === undefined || values === undefined) return;
      functions.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
    };
    const { inputs, outputs, groups } = this.shape;
    // A sequence may read keys that an earlier one of the batch writes.
    for (const { sequence } of this.members) this.#pool.positions.write(sequence.writes, sequence.positions);
    const tokens = new Int32Array(inputs);
    const positions = new Int32Array(inputs);
    const spans = graph.spans === undefined ? undefined : new Int32Array(inputs);
    const writes = new Int32Array(inputs).fill(this.#pool.spareSlot);
    const attended = graph.attended === undefined ? undefined : new Int32Array(inputs);
    const outputRows = new Int32Array(outputs);
    const embeds = graph.embeds && {
      values: new Float32Array(inputs * this.#hiddenSize),
      tokenFactors: new Float32Array(inputs).fill(1),
    };
    /** Rows of the attention's results before each group's. */
    let before = 0;
    const firstResults = groups.map(({ rows, queries }) => {
      const first = before;
      before += rows * queries;
      return first;
    });
    for (const { sequence, firstInput, group, row, firstOutput } of this.members) {
      const count = sequence.positions.length;
      if (sequence.inputs.kind === 'tokens') tokens.set(sequence.inputs.tokens, firstInput);
      else if (sequence.inputs.kind === 'embeds' && embeds) {
        embeds.values.set(sequence.inputs.embeds, firstInput * this.#hiddenSize);
        embeds.tokenFactors.fill(0, firstInput, firstInput + count);
      }
      sequence.positions.forEach((position, i) => {
        positions[firstInput + i] = spans ? position % ROTATION_SPAN : position;
        if (spans) spans[firstInput + i] = Math.floor(position / ROTATION_SPAN);
      });
      writes.set(sequence.writes, firstInput);
      if (attended) {
        const first = (firstResults[group] as number) + row * (groups[group] as GroupShape).queries;
        for (let i = 0; i < count; i++) attended[firstInput + i] = first + i;
      }
      const { output } = sequence;
      if (output.kind === 'none') continue;
      for (let i = 0; i < output.rows; i++) outputRows[firstOutput + i] = firstInput + count - output.rows + i;
    }
    set(graph.tokens, tokens);
    set(graph.positions, positions);
    set(graph.spans, spans);
    set(graph.writes, writes);
    set(graph.attended, attended);
    set(graph.outputs, outputRows);
    set(graph.embeds?.values, embeds?.values);
    set(graph.embeds?.tokenFactors, embeds?.tokenFactors);
    groups.forEach((group, g) => {
      const feeds = this.#groupFeeds(group, g);
      const tensors = graph.groups[g];
      set(tensors?.queries, feeds.queries);
      set(tensors?.slots, feeds.slots);
      set(tensors?.ownColumns, feeds.ownColumns);
      set(tensors?.mask, feeds.mask);
      feeds.windowMasks.forEach((mask, i) => {
        set(tensors?.windowMasks[i], mask);
      });
    });
  }

  /**
   * The columns of a row are its context, its own inputs, and padding: at least one column, which reads the null slot. Queries that see nothing,
   * and those of padding, see this column.
   */
  #groupFeeds({ rows, queries, columns }: GroupShape, group: number) {
    const queryRows = new Int32Array(rows * queries);
    const slots = new Int32Array(rows * columns + 1).fill(this.#pool.nullSlot);
    const ownColumns = new Int32Array(this.shape.inputs).fill(rows * columns);
    const mask = new Uint16Array(rows * queries * columns).fill(HIDDEN);
    const seeNothing = (query: number) => {
      mask[query * columns + columns - 1] = VISIBLE;
    };
    const isTaken = new Uint8Array(rows);
    for (const { sequence, firstInput, row, group: own } of this.members) {
      if (own !== group) continue;
      isTaken[row] = 1;
      const { context, positions, mask: rule } = sequence;
      const count = positions.length;
      const width = context.length + count;
      slots.set(context, row * columns);
      for (let i = 0; i < queries; i++) {
        const query = row * queries + i;
        if (i >= count) {
          seeNothing(query);
          continue;
        }
        queryRows[query] = firstInput + i;
        ownColumns[firstInput + i] = row * columns + context.length + i;
        const start = query * columns;
        if (rule === 'causal') mask.fill(VISIBLE, start, start + context.length + i + 1);
        else {
          let isBlind = true;
          for (let j = 0; j < width; j++) {
            if (rule[i * width + j] === 0) continue;
            mask[start + j] = VISIBLE;
            isBlind = false;
          }
          if (isBlind) seeNothing(query);
        }
      }
    }
    isTaken.forEach((taken, row) => {
      if (taken === 0) for (let i = 0; i < queries; i++) seeNothing(row * queries + i);
    });
    const windowMasks = this.#windows.map((window) =>
      this.#windowMask(mask, { rows, queries, columns }, group, window),
    );
    return { queries: queryRows, slots, ownColumns, mask, windowMasks };
  }

  /** A group's mask without the keys that lie outside the window of a query. */
  #windowMask(mask: Uint16Array, { queries, columns }: GroupShape, group: number, window: number): Uint16Array {
    const windowed = mask.slice();
    for (const { sequence, row, group: own } of this.members) {
      if (own !== group) continue;
      const { context, positions } = sequence;
      const keys = [...Array.from(context, (slot) => this.#pool.positions.at(slot)), ...positions];
      positions.forEach((position, i) => {
        const start = (row * queries + i) * columns;
        let isBlind = true;
        keys.forEach((key, column) => {
          if (position - key >= window) windowed[start + column] = HIDDEN;
          else if (windowed[start + column] === VISIBLE) isBlind = false;
        });
        if (isBlind) windowed[start + columns - 1] = VISIBLE;
      });
    }
    return windowed;
  }
}

/** Assigns each member to a group of similar sizes, and returns the groups' shapes. */
function groupsOf(members: readonly Member[]): GroupShape[] {
  const byKey = new Map<string, Member[]>();
  for (const member of members) {
    const { positions, context } = member.sequence;
    const queries = paddedQueries(positions.length);
    // Contexts of one group differ by at most a factor of four or so.
    const columnClass = Math.ceil(Math.log2(paddedColumns(context.length + positions.length + 1)) / 2);
    const key = `${queries} ${columnClass}`;
    const group = byKey.get(key) ?? [];
    byKey.set(key, group);
    group.push(member);
  }
  // In a fixed order, batches of the same sizes have the same shape.
  const groups = [...byKey.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group);
  return groups.map((group, index) => {
    group.forEach((member, row) => {
      member.group = index;
      member.row = row;
    });
    const queries = paddedQueries(group[0]?.sequence.positions.length ?? 0);
    return {
      rows: queries === 1 ? paddedRows(group.length) : group.length,
      queries,
      columns: paddedColumns(
        Math.max(...group.map(({ sequence }) => sequence.context.length + sequence.positions.length)) + 1,
      ),
    };
  });
}

/** Gives the wanted members their output rows from `first` on, and returns the end. */
function placeOutputs(
  members: readonly Member[],
  first: number,
  isWanted: (sequence: SequenceInput) => boolean,
): number {
  let next = first;
  for (const member of members) {
    const { output } = member.sequence;
    if (output.kind === 'none' || !isWanted(member.sequence)) continue;
    member.firstOutput = next;
    next += output.rows;
  }
  return next;
}

/** Sizes with padding. They grow with the number, so that batches of similar sizes share a graph and little is computed in vain. */
export function paddedRows(rows: number): number {
  return roundUp(rows, Math.max(1, powerBelow(rows) >> 2));
}

function paddedInputs(inputs: number): number {
  return inputs < 64 ? paddedRows(inputs) : roundUp(inputs, 16);
}

function paddedQueries(queries: number): number {
  return queries <= 4 ? queries : paddedInputs(queries);
}

function paddedColumns(columns: number): number {
  return roundUp(columns, Math.max(COLUMN_STEP, powerBelow(columns) >> 3));
}

/** The largest power of two that is not above `n`. */
function powerBelow(n: number): number {
  return 2 ** Math.floor(Math.log2(Math.max(1, n)));
}

function roundUp(n: number, step: number): number {
  return Math.ceil(n / step) * step;
}

function largest(values: Uint32Array): number {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}
