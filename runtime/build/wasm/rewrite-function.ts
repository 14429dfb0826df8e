import { leb, type Reader, signedLeb, WasmError, Writer } from './binary.ts';
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

/** A block that is open at the current instruction, and can be the target of branches. */
interface Label {
  readonly opcode: number;
  /** Length of the path at the block's start. The `else` of an `if` begins with it, too. */
  readonly start: number;
  /** Longest path that branches to the block's end; DEAD for none. */
  branches: number;
  hasElse: boolean;
}

/** Length of the path to an instruction that is never reached. */
const DEAD = -1;

/**
 * Longest path, in instructions, from the last fuel check to the current instruction, over all ways to reach that instruction. Wasm's control flow
 * is structured, so one pass over a function's code is enough: paths join at the ends of blocks, and the only way back is a loop, whose
 * header has a check.
 */
class PathLength {
  /** Longest path to any instruction, from the last check or the function's start. */
  longest = 0;
  readonly #max: number;
  #length = 0;
  readonly #labels: Label[] = [{ opcode: OP.block, start: 0, branches: DEAD, hasElse: false }];

  constructor(max: number) {
    this.#max = max;
  }

  /** Advances by one instruction of `cost` simple instructions. Returns true when the caller must insert a check before this instruction. */
  advance(cost: number): boolean {
    if (this.#length === DEAD) return false;
    const isCheckDue = this.#length + cost > this.#max;
    if (isCheckDue) this.reset();
    this.#length += cost;
    if (this.#length > this.longest) this.longest = this.#length;
    return isCheckDue;
  }

  /** Restarts the path at an inserted check. */
  reset(): void {
    this.#length = 0;
  }

  /** Follows the instruction's control flow. @param at the instruction's offset, for errors */
  follow({ opcode, labels }: Instruction, at: number): void {
    switch (opcode) {
      case OP.block:
      case OP.loop:
      case OP.if:
      case OP.try:
        this.#open(opcode);
        break;
      case OP.tryTable:
        // An exception anywhere in the body may branch to these labels, so assume the longest path.
        for (const label of labels) this.#branch(label, this.#max, at);
        this.#open(opcode);
        break;
      case OP.else:
      case OP.catch:
      case OP.catchAll:
        // An exception may come from anywhere in the body, so the caller inserts a check after `catch` and resets the path.
        this.#else(at);
        break;
      case OP.end:
      case OP.delegate:
        this.#close(at);
        break;
      case OP.br:
      case OP.brTable:
        for (const label of labels) this.#branch(label, this.#length, at);
        this.#length = DEAD;
        break;
      case OP.brIf:
      case OP.brOnNull:
      case OP.brOnNonNull:
        for (const label of labels) this.#branch(label, this.#length, at);
        break;
      case OP.unreachable:
      case OP.return:
      case OP.throw:
      case OP.rethrow:
      case OP.throwRef:
      case OP.returnCall:
      case OP.returnCallIndirect:
      case OP.returnCallRef:
        this.#length = DEAD;
        break;
      default:
    }
  }

  #open(opcode: number): void {
    this.#labels.push({ opcode, start: this.#length, branches: DEAD, hasElse: false });
  }

  #else(at: number): void {
    const label = this.#label(0, at);
    label.branches = Math.max(label.branches, this.#length);
    label.hasElse = true;
    this.#length = label.start;
  }

  #close(at: number): void {
    const label = this.#label(0, at);
    this.#labels.pop();
    // An `if` without `else` may skip its body.
    const skipped = label.opcode === OP.if && !label.hasElse ? label.start : DEAD;
    this.#length = Math.max(this.#length, label.branches, skipped);
  }

  #branch(depth: number, length: number, at: number): void {
    const label = this.#label(depth, at);
    if (label.opcode !== OP.loop) label.branches = Math.max(label.branches, length);
  }

  #label(depth: number, at: number): Label {
    const label = this.#labels[this.#labels.length - 1 - depth];
    if (!label) throw new WasmError('branch out of its function', at);
    return label;
  }
}

/** Bytes of a piece, after which the guest may be preempted. In untouched pages, a piece takes a millisecond. */
const PIECE_BYTES = 1 << 20;
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
