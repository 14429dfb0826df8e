import { WasmError } from './binary.ts';
import { type Instruction, OP } from './instructions.ts';

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
export class PathLength {
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
