import { leb, signedLeb } from './binary.ts';
import {
  BULK,
  EMPTY_BLOCK,
  GLOBAL_GET,
  GLOBAL_SET,
  I32,
  I32_CONST,
  I32_GT_U,
  I32_LE_S,
  I32_SUB,
  type Instruction,
  LOCAL_GET,
  LOCAL_SET,
  OP,
} from './instructions.ts';

/** Bytes of a piece, after which the guest may be preempted. In untouched pages, a piece takes a millisecond. */
export const PIECE_BYTES = 1 << 20;
/** Fuel of a piece: one unit pays for 64 bytes, as in `FunctionRewriter`. */
const PIECE_FUEL = PIECE_BYTES >> 6;

// Opcodes (core specification, 5.4).
const MEMORY_SIZE = 0x3f;
const I64_CONST = 0x42;
const I32_LE_U = 0x4d;
const I64_GT_U = 0x56;
const I32_ADD = 0x6a;
const I64_ADD = 0x7c;
const I64_SHL = 0x86;
const I64_EXTEND_I32_U = 0xad;

/** Indices of the parameters of `memory.fill` and `memory.copy`: destination, value (fill) or source (copy), and length. */
const [TO, FROM, LENGTH] = [0, 1, 2] as const;

/** Type of the functions of `BulkPieces` in binary form: three parameters of i32, no result. */
export const PIECES_TYPE = [0x60, 3, I32, I32, I32, 0];

/**
 * Functions that a metered module calls instead of a long `memory.fill` or `memory.copy`. One instruction cannot be preempted, so these functions
 * work in pieces. The module has taken fuel for the whole size before the call. These functions take fuel again for each piece but the last, so
 * that the host can preempt the guest between pieces. For a range that reaches outside of its memory, they run the whole instruction, which traps.
 */
export class BulkPieces {
  readonly #fuel: readonly number[];
  readonly #yield: readonly number[];
  readonly #firstIndex: number;
  readonly #bodies = new Map<string, readonly number[]>();

  /**
   * @param fuel index of the global `pie_fuel`, encoded as LEB128
   * @param yieldIndex index of the function that asks the host how to continue, encoded as LEB128
   * @param first index of the first of these functions
   */
  constructor(fuel: readonly number[], yieldIndex: readonly number[], first: number) {
    this.#fuel = fuel;
    this.#yield = yieldIndex;
    this.#firstIndex = first;
  }

  /** Bodies of the functions, in the order of their indices. */
  get bodies(): Iterable<readonly number[]> {
    return this.#bodies.values();
  }

  get count(): number {
    return this.#bodies.size;
  }

  /** Index of the function for an instruction; null for an instruction that does not work in pieces. */
  indexFor({ sub, index, source }: Instruction): number | null {
    if (sub !== BULK.memoryFill && sub !== BULK.memoryCopy) return null;
    const copies = sub === BULK.memoryCopy;
    const key = copies ? `copy ${index} ${source}` : `fill ${index}`;
    if (!this.#bodies.has(key)) this.#bodies.set(key, copies ? this.#copy(index, source) : this.#fill(index));
    return this.#firstIndex + [...this.#bodies.keys()].indexOf(key);
  }

  // A body begins with the number of its groups of locals: 0.
  #fill(memory: number): readonly number[] {
    const fill = [OP.bulk, ...leb(BULK.memoryFill), ...leb(memory)];
    return [
      0,
      ...outside(TO, memory, [...parameters, ...fill]),
      ...this.#pieces(
        [...get(TO), ...get(FROM), ...piece, ...fill, ...move(TO, I32_ADD), ...move(LENGTH, I32_SUB)],
        [...parameters, ...fill],
      ),
      OP.end,
    ];
  }

  #copy(to: number, from: number): readonly number[] {
    const copy = [OP.bulk, ...leb(BULK.memoryCopy), ...leb(to), ...leb(from)];
    const wholeCopy = [...parameters, ...copy];
    const forwards = [...get(TO), ...get(FROM), ...piece, ...copy, ...move(TO, I32_ADD), ...move(FROM, I32_ADD)];
    const fromEnd = (start: number) => [...get(start), ...get(LENGTH), I32_ADD];
    const backwards = [...fromEnd(TO), ...fromEnd(FROM), ...piece, ...copy];
    return [
      0,
      ...outside(TO, to, wholeCopy),
      ...outside(FROM, from, wholeCopy),
      // For overlapping ranges, copy from the end that does not overwrite unread source bytes.
      ...[...get(TO), ...get(FROM), I32_LE_U, OP.if, EMPTY_BLOCK],
      ...this.#pieces([...forwards, ...move(LENGTH, I32_SUB)], wholeCopy),
      OP.else,
      ...this.#pieces([...move(LENGTH, I32_SUB), ...backwards], wholeCopy),
      ...[OP.end, OP.end],
    ];
  }

  /** Repeats `step` while more than a piece is left, and then runs `rest`. After each step it takes fuel, and yields if none is left. */
  #pieces(step: readonly number[], rest: readonly number[]): readonly number[] {
    return [
      ...[OP.loop, EMPTY_BLOCK, ...get(LENGTH), ...piece, I32_GT_U, OP.if, EMPTY_BLOCK, ...step],
      ...[GLOBAL_GET, ...this.#fuel, I32_CONST, ...signedLeb(PIECE_FUEL), I32_SUB, GLOBAL_SET, ...this.#fuel],
      ...[GLOBAL_GET, ...this.#fuel, I32_CONST, 0, I32_LE_S, OP.if, EMPTY_BLOCK, OP.call, ...this.#yield, OP.end],
      ...[OP.br, 1, OP.end, OP.end, ...rest],
    ];
  }
}

const get = (local: number): readonly number[] => [LOCAL_GET, local];
const piece = [I32_CONST, ...signedLeb(PIECE_BYTES)];
const parameters = [...get(TO), ...get(FROM), ...get(LENGTH)];

/** Adds the size of a piece to a parameter, or subtracts it. */
const move = (local: number, operation: number): readonly number[] => [
  ...[...get(local), ...piece, operation, LOCAL_SET, local],
];

/**
 * Runs the whole instruction, which traps, when `start` plus the length lies past the end of the memory. The sum is made with 64 bits, so that
 * it cannot wrap around; the size of the memory is its number of pages, shifted by 16.
 */
const outside = (start: number, memory: number, whole: readonly number[]): readonly number[] => [
  ...[...get(start), I64_EXTEND_I32_U, ...get(LENGTH), I64_EXTEND_I32_U, I64_ADD],
  ...[MEMORY_SIZE, ...leb(memory), I64_EXTEND_I32_U, I64_CONST, 16, I64_SHL, I64_GT_U],
  ...[OP.if, EMPTY_BLOCK, ...whole, OP.end],
];
