import { fault } from '../../memory/fault.ts';
import type { ContextPages, Mapping } from '../../memory/known-text.ts';
import { bitCount } from '../../memory/pool.ts';
import type { PageSpace } from '../../memory/space.ts';
import type { Mask } from '../../protocol/calls.ts';

/** The slots that a call reads: the filled, unmasked ones of its in-pages, in order. */
export interface Context {
  /** The first `count` elements are the physical slots. After them there is room for the slots of the call's inputs. */
  readonly slots: Uint32Array;
  readonly count: number;
  /** Position of each slot. Undefined when the call has no explicit mask and all positions are smaller than those of its inputs. */
  readonly positions: Uint32Array | undefined;
  /** Each slot's column in an explicit mask, which has a column for every filled slot, masked or not. Defined when `positions` is. */
  readonly columns: Uint32Array | undefined;
  /** Number of these columns; `count` when `columns` is undefined. */
  readonly filled: number;
}

/** Maximum slots that a call may read: those of all pages that its inferlet can hold. A page that is named twice counts twice. */
function maxContext({ owner, pool }: PageSpace): number {
  return Math.min(owner.maxPages, pool.total) * pool.pageSize;
}

/**
 * Counts the filled, unmasked slots of a call's in-pages, on the device or swapped out. Brings no page in and keeps nothing.
 * @throws CallFault `limit-exceeded` when the filled slots are more than a call may read
 */
export function checkContext(space: PageSpace, { text, rest }: ContextPages): number {
  const { pool } = space;
  const maxSlots = maxContext(space);
  let filled = text.mappings.length * pool.pageSize;
  let visible = filled;
  for (const { page, masked } of rest) {
    const slots = page.filled === pool.fullBits ? pool.pageSize : bitCount(page.filled);
    filled += slots;
    visible += masked === 0 ? slots : bitCount(page.filled & ~masked);
    if (filled > maxSlots)
      throw fault(
        'limit-exceeded',
        `the in-pages have more than ${maxSlots} slots, which is all that the inferlet may hold`,
      );
  }
  return visible;
}

/**
 * Gathers the context of a call whose smallest input position is `firstPosition`. Leaves room for `room` more elements after the slots. With
 * `hasExplicitMask`, the result has `positions` and `columns`. The caller must have brought the pages onto the device. If a page may be named
 * twice, the caller must also have called `checkContext`, which bounds the slots.
 */
export function gatherContext(
  space: PageSpace,
  pages: ContextPages,
  firstPosition: number,
  room: number,
  hasExplicitMask: boolean,
): Context {
  const { pageSize, fullBits } = space.pool;
  const { text, rest } = pages;
  const slots = text.slots(Math.min(rest.length * pageSize, maxContext(space)) + room);
  let count = text.mappings.length * pageSize;
  let allBefore = count === 0 || (text.last?.maxPosition ?? 0) < firstPosition;
  for (const { page, masked } of rest) {
    const visible = (page.filled & ~masked) >>> 0;
    if (visible === 0) continue;
    if (page.maxPosition >= firstPosition) allBefore = false;
    const base = page.frame * pageSize;
    if (visible === fullBits) for (let slot = 0; slot < pageSize; slot++) slots[count++] = base + slot;
    else for (let slot = 0; slot < pageSize; slot++) if (visible & (1 << slot)) slots[count++] = base + slot;
  }
  if (allBefore && !hasExplicitMask) return { slots, count, positions: undefined, columns: undefined, filled: count };
  return { slots, count, ...positionsAndColumns([...text.mappings, ...rest], pageSize, count) };
}

/** For each slot that `gatherContext` lists, its index among all slots of `pages`, empty and masked ones included. */
export function visiblePlaces(space: PageSpace, pages: Uint32Array): number[] {
  const { pageSize } = space.pool;
  const indices: number[] = [];
  for (let i = 0; i < pages.length; i++) {
    const { page, masked } = space.mapping(pages[i] as number);
    const visible = page.filled & ~masked;
    for (let slot = 0; slot < pageSize; slot++) if (visible & (1 << slot)) indices.push(i * pageSize + slot);
  }
  return indices;
}

/** Positions and columns of the slots that `gatherContext` listed. */
function positionsAndColumns(
  mappings: readonly Mapping[],
  pageSize: number,
  count: number,
): { positions: Uint32Array; columns: Uint32Array; filled: number } {
  const positions = new Uint32Array(count);
  const columns = new Uint32Array(count);
  let index = 0;
  let column = 0;
  for (const { page, masked } of mappings) {
    for (let slot = 0; slot < pageSize; slot++) {
      const bit = 1 << slot;
      if ((page.filled & bit) === 0) continue;
      if ((masked & bit) === 0) {
        positions[index] = page.positions[slot] as number;
        columns[index++] = column;
      }
      column++;
    }
  }
  return { positions, columns, filled: column };
}

/** Maximum elements of a visibility matrix: 64 Mi, one byte each. */
const MAX_MATRIX = 64 * 1024 * 1024;

/**
 * The keys that each input sees: `causal` when each input sees the whole context and the inputs up to itself, else a matrix with a row for each
 * input and a column for each key, those of the context before those of the inputs.
 * @throws CallFault `limit-exceeded` for a matrix that is too large, `invalid-argument` for one of the wrong shape or with a row that hides every key
 */
export function visibility(positions: Uint32Array, context: Context, mask: Mask | undefined): Uint8Array | 'causal' {
  if (!mask && isCausal(positions, context)) return 'causal';
  const inputs = positions.length;
  // An explicit mask has columns for hidden slots as well.
  const width = (mask ? context.filled : context.count) + inputs;
  if (inputs * width > MAX_MATRIX)
    throw fault('limit-exceeded', `a mask of ${inputs} × ${width} has more than ${MAX_MATRIX} values; split the call`);
  return mask ? explicitMatrix(mask, inputs, context) : inferredMatrix(positions, context);
}

/** True when the inputs are in rising order of position, all after the context. */
function isCausal(positions: Uint32Array, context: Context): boolean {
  for (let i = 1; i < positions.length; i++) if ((positions[i] as number) <= (positions[i - 1] as number)) return false;
  if (!context.positions) return true;
  const firstPosition = positions[0] as number;
  for (let i = 0; i < context.count; i++) if ((context.positions[i] as number) >= firstPosition) return false;
  return true;
}

/** A key is visible when its position is smaller than the query's, or it is the query's own. */
function inferredMatrix(positions: Uint32Array, context: Context): Uint8Array {
  const inputs = positions.length;
  const width = context.count + inputs;
  const matrix = new Uint8Array(inputs * width);
  for (let i = 0; i < inputs; i++) {
    const query = positions[i] as number;
    const row = i * width;
    if (context.positions) {
      for (let k = 0; k < context.count; k++) matrix[row + k] = (context.positions[k] as number) < query ? 1 : 0;
    } else matrix.fill(1, row, row + context.count);
    for (let j = 0; j < inputs; j++)
      matrix[row + context.count + j] = j === i || (positions[j] as number) < query ? 1 : 0;
  }
  return matrix;
}

/**
 * Checks a mask before its matrix is allocated, which may take 64 MiB. Each row of a mask is a list of runs, which hide and show keys in turn.
 * @throws CallFault `invalid-argument`
 */
function checkMask(mask: Mask, inputs: number, context: Context): void {
  if (mask.rowLengths.length !== inputs) {
    throw fault('invalid-argument', `the mask has ${mask.rowLengths.length} rows and the call ${inputs} inputs`);
  }
  const fullWidth = context.filled + inputs;
  const shownBefore = visibleBefore(context);
  let run = 0;
  for (let i = 0; i < inputs; i++) {
    const rowLength = mask.rowLengths[i] as number;
    if (rowLength > mask.runs.length - run)
      throw fault('invalid-argument', `the mask's row ${i} claims ${rowLength} runs; fewer are left`);
    let column = 0;
    let shownKeys = 0;
    for (let r = 0; r < rowLength; r++) {
      const length = mask.runs[run++] as number;
      if (length > fullWidth - column)
        throw fault(
          'invalid-argument',
          `the mask's row ${i} is wider than ${context.filled} slots and ${inputs} inputs`,
        );
      if (r % 2 === 1) shownKeys += shownBefore(column + length) - shownBefore(column);
      column += length;
    }
    if (column !== fullWidth) {
      throw fault(
        'invalid-argument',
        `the mask's row ${i} covers ${column} of ${context.filled} slots and ${inputs} inputs`,
      );
    }
    if (shownKeys === 0) throw fault('invalid-argument', `the mask's row ${i} hides every key from its input`);
  }
  if (run !== mask.runs.length)
    throw fault('invalid-argument', `the mask has ${mask.runs.length - run} runs past its last row`);
}

/** Returns the number of keys in the columns before a given one: columns of inputs, and those of slots that are not masked. */
function visibleBefore({ columns, count, filled }: Context): (column: number) => number {
  const visibleCounts = new Uint32Array(filled + 1);
  for (let k = 0; k < count; k++) visibleCounts[(columns?.[k] as number) + 1] = 1;
  for (let c = 0; c < filled; c++)
    visibleCounts[c + 1] = (visibleCounts[c + 1] as number) + (visibleCounts[c] as number);
  return (column) => (visibleCounts[Math.min(column, filled)] as number) + Math.max(0, column - filled);
}

function explicitMatrix(mask: Mask, inputs: number, context: Context): Uint8Array {
  checkMask(mask, inputs, context);
  const columns = context.columns ?? new Uint32Array(0);
  const width = context.count + inputs;
  const matrix = new Uint8Array(inputs * width);
  const fullRow = new Uint8Array(context.filled + inputs);
  let run = 0;
  for (let i = 0; i < inputs; i++) {
    let column = 0;
    for (let r = 0; r < (mask.rowLengths[i] as number); r++) {
      const length = mask.runs[run++] as number;
      fullRow.fill(r % 2, column, column + length);
      column += length;
    }
    const row = i * width;
    for (let k = 0; k < context.count; k++) matrix[row + k] = fullRow[columns[k] as number] as number;
    for (let j = 0; j < inputs; j++) matrix[row + context.count + j] = fullRow[context.filled + j] as number;
  }
  return matrix;
}

/** Rows `from` to `to` of a matrix over `context` slots, in which the inputs before `from` have become context. */
export function matrixRows(matrix: Uint8Array, inputs: number, context: number, from: number, to: number): Uint8Array {
  if (from === 0 && to === inputs) return matrix;
  const width = context + inputs;
  const rows = new Uint8Array((to - from) * (context + to));
  for (let i = from; i < to; i++)
    rows.set(matrix.subarray(i * width, i * width + context + to), (i - from) * (context + to));
  return rows;
}
