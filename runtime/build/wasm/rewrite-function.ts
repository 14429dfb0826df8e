import { leb, type Reader, signedLeb, WasmError, Writer } from './binary.ts';
import { type BulkPieces, PIECE_BYTES } from './bulk-pieces.ts';
import { skipLocals } from './call-graph.ts';
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
  readInstruction,
} from './instructions.ts';
import { PathLength } from './path-length.ts';

/** Fuel that a function with loops takes at once and then counts down in a local variable: V8 keeps locals in registers, but not globals. */
export const GRANT = 16;

/** Maximum number of instructions between two checks, along any path. It bounds the time that one unit of fuel pays for. */
const MAX_PATH = 512;
/**
 * A function has no check at its entry if its longest path, callees included, has at most this many instructions. It must also have no loops
 * and no indirect calls.
 */
const UNCHECKED_FUNCTION = 128;
/** Price, in instructions, of calling a function that has a check of its own. Prices add up to the length of a path. */
const CHECKED_CALL = 8;
/** Price of calling an import: so high that a function without an entry check can call only one. */
const IMPORT_CALL = 96;
/** Price of a bulk instruction (`memory.copy`, `table.fill`, …), besides the fuel that it takes by its size. */
const BULK_COST = 32;
/** One unit of fuel pays for 64 bytes that a bulk instruction moves. A right shift by this number divides the size. */
const BYTES_SHIFT = 6;
/** One unit of fuel pays for 16 table elements that a bulk instruction moves. */
const ELEMENTS_SHIFT = 4;
/** One unit of fuel pays for 8 locals of 8 bytes each: until V8 has optimised a function, each call sets its locals to zero. */
const LOCALS_SHIFT = BYTES_SHIFT - 3;

const LOCAL_TEE = 0x22;
const I32_LT_S = 0x48;
const I32_SHR_U = 0x76;

/** The parts of the module that checks use. All indices are encoded as LEB128. */
export interface Checks {
  /** Global `pie_fuel`. */
  readonly fuel: readonly number[];
  /** Function that takes the next `GRANT` of fuel from the global. */
  readonly refill: readonly number[];
  /** Function that asks the host how to continue (`runtime/lowering/fuel.ts`). */
  readonly yield: readonly number[];
  /** Functions that run long bulk instructions piece by piece. */
  readonly pieces: BulkPieces;
  /** Type of the functions in `pieces`, encoded as a block type. */
  readonly piecesType: readonly number[];
}

/** Branches of one function that are rarely taken: offsets of the `if`s in its body. */
export interface BranchHints {
  readonly index: number;
  readonly unlikely: readonly number[];
}

interface Insertion {
  /** Offset in the function's body at which the code is inserted. */
  readonly at: number;
  readonly kind: 'count' | 'charge' | 'ask' | 'end';
  /** Right shift that turns a bulk instruction's size into its price. */
  readonly shift: number;
  /** Function that replaces a long bulk instruction; null for an instruction without one. */
  readonly pieces: number | null;
}

interface Scan {
  readonly insertions: readonly Insertion[];
  /** True when the function makes indirect calls. */
  readonly indirect: boolean;
  /** Longest path, in instructions, including callees without a check of their own. */
  readonly longest: number;
}

/**
 * Puts the checks into functions, callees first.
 *
 * - `count`: counts down a local that starts with GRANT. It stands at a loop's header, at a `catch`, and where an unchecked path exceeds MAX_PATH.
 * - The entry of a function with `count` checks takes GRANT from the global; the entry of any other function takes 1. A function needs no
 *   entry check when it and all its callees are short, are not recursive and make no indirect calls: its price is then part of its
 *   callers' paths. Recursion of any kind, tail calls and calls across modules included, passes a checked entry.
 * - `charge`: takes the price of a bulk instruction from the global before the instruction runs: its size, divided. For a long fill or
 *   copy, a function of BulkPieces then runs the instruction.
 * - `end`: closes the `if … else …` that chooses between that function and the bulk instruction.
 * - A call sets all locals to zero. The cost counts into the function's longest path; above UNCHECKED_FUNCTION, the entry also charges it.
 * - `ask`: checks the global after a direct call of an import, or of a function without an entry check that may call an import. The host takes
 *   all fuel away when an import took long. Only functions that count down need it.
 */
export class FunctionRewriter {
  /** Number of checks inserted so far. */
  checks = 0;
  /** The checks' branches in the rewritten functions, for the section that tells V8 which branches are rare. */
  readonly hints: BranchHints[] = [];
  readonly #target: Checks;
  readonly #imported: number;
  readonly #recursive: ReadonlySet<number>;
  /** Price of calling a function, by index among the defined functions. */
  readonly #prices = new Map<number, number>();
  readonly #instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };

  constructor(target: Checks, imported: number, recursive: ReadonlySet<number>) {
    this.#target = target;
    this.#imported = imported;
    this.#recursive = recursive;
  }

  /** The function's body (locals and code) with its checks. Callees must have been rewritten before, except in cycles. */
  rewrite(index: number, reader: Reader, params: number): Uint8Array {
    const start = reader.at;
    const groups = reader.u32();
    const groupsStart = reader.at;
    reader.at = start;
    const locals = skipLocals(reader, params);
    const codeStart = reader.at;
    const { insertions: found, indirect, longest: path } = this.#scan(reader);
    const zeroed = Math.floor((locals - params) / 2 ** LOCALS_SHIFT);
    const longest = path + zeroed;
    const hasCounts = found.some(({ kind }) => kind === 'count');
    const insertions = hasCounts ? found : found.filter(({ kind }) => kind !== 'ask');
    const hasEntryCheck = hasCounts || indirect || this.#recursive.has(index) || longest > UNCHECKED_FUNCTION;
    if (!hasEntryCheck) this.#prices.set(index, longest);
    if (!hasEntryCheck && insertions.length === 0) return reader.bytes.subarray(start, reader.end);

    this.checks += insertions.length + (hasEntryCheck ? 1 : 0);
    // The checks add two locals: a counter, and one for a value that a check uses twice.
    const counter = leb(locals);
    const scratch = leb(locals + 1);
    // 24 bytes for each insertion and 32 for the entry are an estimate: the writer grows.
    const out = new Writer(reader.end - start + insertions.length * 24 + 32);
    const unlikely: number[] = [];
    const check = (condition: readonly number[], body: readonly number[]): void => {
      out.push(condition);
      unlikely.push(out.length);
      out.push([OP.if, EMPTY_BLOCK, ...body, OP.end]);
    };
    out.push(leb(groups + 1));
    out.push(reader.bytes.subarray(groupsStart, codeStart));
    // The group of the two added locals.
    out.push([2, I32]);
    const price = (hasCounts ? GRANT : 1) + (zeroed > UNCHECKED_FUNCTION ? zeroed : 0);
    if (hasEntryCheck) check(this.#entryCondition(price, scratch), this.#yield);
    if (hasCounts) out.push([I32_CONST, GRANT, LOCAL_SET, ...counter]);
    let from = codeStart;
    for (const { at, kind, shift, pieces } of insertions) {
      out.push(reader.bytes.subarray(from, at));
      if (kind === 'count') check(countCondition(counter), this.#refill(counter));
      else if (kind === 'ask') check(this.#emptyCondition, this.#yield);
      else if (kind === 'end') out.push([OP.end]);
      else check(this.#chargeCondition(scratch, shift), this.#yield);
      if (pieces !== null) {
        out.push([LOCAL_GET, ...scratch, I32_CONST, ...signedLeb(PIECE_BYTES), I32_GT_U]);
        unlikely.push(out.length);
        out.push([OP.if, ...this.#target.piecesType, OP.call, ...leb(pieces), OP.else]);
      }
      from = at;
    }
    out.push(reader.bytes.subarray(from, reader.end));
    this.hints.push({ index: index + this.#imported, unlikely });
    return out.bytes();
  }

  #scan(reader: Reader): Scan {
    const instruction = this.#instruction;
    const path = new PathLength(MAX_PATH);
    const insertions: Insertion[] = [];
    const insert = (offset: number, kind: Insertion['kind'], shift = 0, pieces: number | null = null) =>
      insertions.push({ at: offset, kind, shift, pieces });
    let indirect = false;
    let depth = 1;
    while (depth > 0) {
      const at = reader.at;
      readInstruction(reader, instruction);
      const { opcode } = instruction;
      const price = this.#price(instruction);
      if (path.advance(price)) insert(at, 'count');
      path.follow(instruction, at);
      if (opensBlock(opcode)) depth += 1;
      else if (opcode === OP.end || opcode === OP.delegate) depth -= 1;
      if (opcode === OP.loop || opcode === OP.catch || opcode === OP.catchAll) {
        insert(reader.at, 'count');
        path.reset();
      } else if (isIndirectCall(opcode)) indirect = true;
      else if (opcode === OP.call && price >= IMPORT_CALL) insert(reader.at, 'ask');
      else if (opcode === OP.bulk) {
        const shift = bulkShift(instruction.sub);
        const pieces = this.#target.pieces.indexFor(instruction);
        if (shift > 0) insert(at, 'charge', shift, pieces);
        if (pieces !== null) insert(reader.at, 'end');
      }
    }
    if (!reader.done) throw new WasmError('code after the end of a function', reader.at);
    return { insertions, indirect, longest: path.longest };
  }

  #price({ opcode, index }: Instruction): number {
    if (opcode === OP.call || opcode === OP.returnCall) {
      return index < this.#imported ? IMPORT_CALL : (this.#prices.get(index - this.#imported) ?? 0) + CHECKED_CALL;
    }
    if (isIndirectCall(opcode)) return UNCHECKED_FUNCTION;
    return opcode === OP.bulk || opcode === OP.memoryGrow ? BULK_COST : 1;
  }

  get #emptyCondition(): readonly number[] {
    return [GLOBAL_GET, ...this.#target.fuel, I32_CONST, 0, I32_LE_S];
  }

  get #yield(): readonly number[] {
    return [OP.call, ...this.#target.yield];
  }

  /** Refills the counter. It restarts at GRANT - 1, because the check that refills it takes one unit. */
  #refill(counter: readonly number[]): readonly number[] {
    return [OP.call, ...this.#target.refill, I32_CONST, GRANT - 1, LOCAL_SET, ...counter];
  }

  #entryCondition(price: number, scratch: readonly number[]): readonly number[] {
    const { fuel } = this.#target;
    return [
      ...[GLOBAL_GET, ...fuel, I32_CONST, ...signedLeb(price), I32_SUB, LOCAL_TEE, ...scratch, GLOBAL_SET, ...fuel],
      ...[LOCAL_GET, ...scratch, I32_CONST, 0, I32_LE_S],
    ];
  }

  /** Subtracts the operand on top of the stack, divided, from the fuel, and keeps the operand on the stack. */
  #chargeCondition(scratch: readonly number[], shift: number): readonly number[] {
    const { fuel } = this.#target;
    return [
      ...[LOCAL_TEE, ...scratch, GLOBAL_GET, ...fuel, LOCAL_GET, ...scratch],
      ...[I32_CONST, shift, I32_SHR_U, I32_SUB, GLOBAL_SET, ...fuel],
      ...[GLOBAL_GET, ...fuel, I32_CONST, 0, I32_LE_S],
    ];
  }
}

const countCondition = (counter: readonly number[]): readonly number[] => [
  ...[LOCAL_GET, ...counter, I32_CONST, 1, I32_SUB, LOCAL_TEE, ...counter, I32_CONST, 0, I32_LT_S],
];

const opensBlock = (opcode: number): boolean =>
  (opcode >= OP.block && opcode <= OP.if) || opcode === OP.try || opcode === OP.tryTable;

const isIndirectCall = (opcode: number): boolean =>
  opcode === OP.callIndirect ||
  opcode === OP.returnCallIndirect ||
  opcode === OP.callRef ||
  opcode === OP.returnCallRef;

/** Right shift that turns a bulk instruction's size into its price; 0 for an instruction that moves nothing. */
function bulkShift(sub: number): number {
  switch (sub) {
    case BULK.memoryInit:
    case BULK.memoryCopy:
    case BULK.memoryFill:
      return BYTES_SHIFT;
    case BULK.tableInit:
    case BULK.tableCopy:
    case BULK.tableFill:
    case BULK.tableGrow:
      return ELEMENTS_SHIFT;
    default:
      return 0;
  }
}
