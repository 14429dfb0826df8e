import { type Reader, WasmError } from './binary.ts';
import { skipBlockType, skipHeapType, skipValueType } from './types.ts';

/** Opcodes that the meter handles. */
export const OP = {
  unreachable: 0x00,
  block: 0x02,
  loop: 0x03,
  if: 0x04,
  else: 0x05,
  try: 0x06,
  catch: 0x07,
  throw: 0x08,
  rethrow: 0x09,
  throwRef: 0x0a,
  end: 0x0b,
  br: 0x0c,
  brIf: 0x0d,
  brTable: 0x0e,
  return: 0x0f,
  call: 0x10,
  callIndirect: 0x11,
  returnCall: 0x12,
  returnCallIndirect: 0x13,
  callRef: 0x14,
  returnCallRef: 0x15,
  delegate: 0x18,
  catchAll: 0x19,
  tryTable: 0x1f,
  memoryGrow: 0x40,
  brOnNull: 0xd5,
  brOnNonNull: 0xd6,
  bulk: 0xfc,
} as const;

/** Second opcodes after 0xfc. */
export const BULK = {
  memoryInit: 8,
  dataDrop: 9,
  memoryCopy: 10,
  memoryFill: 11,
  tableInit: 12,
  elemDrop: 13,
  tableCopy: 14,
  tableGrow: 15,
  tableFill: 17,
} as const;

/** Opcodes and types for the files that write code into modules. */
export const LOCAL_GET = 0x20;
export const LOCAL_SET = 0x21;
export const GLOBAL_GET = 0x23;
export const GLOBAL_SET = 0x24;
export const I32_CONST = 0x41;
export const I32_GT_U = 0x4b;
export const I32_LE_S = 0x4c;
export const I32_SUB = 0x6b;
export const EMPTY_BLOCK = 0x40;
export const I32 = 0x7f;

/** One instruction, as the meter needs it. */
export interface Instruction {
  opcode: number;
  /** Second opcode of a prefixed instruction. */
  sub: number;
  /** Labels that the instruction may branch to, counted outwards; the labels of a `try_table` count from outside of it. */
  labels: number[];
  /** Function of a direct call; memory that is grown, filled or copied to. */
  index: number;
  /** Memory that is copied from. */
  source: number;
}

/**
 * Reads one instruction with its immediates into `into`. The caller reuses one object, because code sections have millions of instructions.
 * It knows every instruction that V8 runs without flags, except those of garbage collection, which it refuses. Core specification, 5.4.
 */
export function readInstruction(reader: Reader, into: Instruction): void {
  const at = reader.at;
  const opcode = reader.byte();
  into.opcode = opcode;
  into.sub = 0;
  if (into.labels.length > 0) into.labels = [];
  // 0x45 to 0xc4: arithmetic without immediates. 0x28 to 0x3e: loads and stores. 0x20 to 0x26: accesses to locals, globals and tables.
  if (opcode >= 0x45 && opcode <= 0xc4) return;
  if (opcode >= 0x28 && opcode <= 0x3e) skipMemoryArgument(reader);
  else if (opcode >= 0x20 && opcode <= 0x26) reader.skipLeb();
  else readOther(reader, into, opcode, at);
}

function readOther(reader: Reader, into: Instruction, opcode: number, at: number): void {
  switch (opcode) {
    case 0x00: // unreachable
    case 0x01: // nop
    case OP.else:
    case OP.throwRef:
    case OP.end:
    case OP.return:
    case OP.catchAll:
    case 0x1a: // drop
    case 0x1b: // select
    case 0xd1: // ref.is_null
    case 0xd4: // ref.as_non_null
      return;
    case OP.block:
    case OP.loop:
    case OP.if:
    case OP.try:
      skipBlockType(reader);
      return;
    case OP.br:
    case OP.brIf:
    case OP.delegate:
    case OP.brOnNull:
    case OP.brOnNonNull:
      into.labels.push(reader.u32());
      return;
    case OP.brTable: // The default label follows the counted ones.
      for (let left = reader.u32(); left >= 0; left -= 1) into.labels.push(reader.u32());
      return;
    case OP.catch:
    case OP.throw:
    case OP.rethrow:
    case OP.callRef:
    case OP.returnCallRef:
    case 0x3f: // memory.size
    case 0xd2: // ref.func
      reader.skipLeb();
      return;
    case OP.call:
    case OP.returnCall:
    case OP.memoryGrow:
      into.index = reader.u32();
      return;
    case OP.callIndirect:
    case OP.returnCallIndirect:
      reader.skipLeb();
      reader.skipLeb();
      return;
    case 0x1c: // select with types
      for (let left = reader.u32(); left > 0; left -= 1) skipValueType(reader);
      return;
    case OP.tryTable:
      readTryTable(reader, into);
      return;
    case 0x41: // i32.const
    case 0x42: // i64.const
      reader.skipLeb();
      return;
    case 0x43: // f32.const
      reader.skip(4);
      return;
    case 0x44: // f64.const
      reader.skip(8);
      return;
    case 0xd0: // ref.null
      skipHeapType(reader);
      return;
    case OP.bulk:
      into.sub = reader.u32();
      readBulk(reader, into, at);
      return;
    case 0xfd: // Vectors
      into.sub = reader.u32();
      skipVector(reader, into.sub, at);
      return;
    case 0xfe: // Atomics
      into.sub = reader.u32();
      skipAtomic(reader, into.sub, at);
      return;
    case 0xfb: // Garbage collection
    case 0xd3: // ref.eq
      throw new WasmError('garbage collection instructions are not supported', at);
    default:
      throw new WasmError(`instruction 0x${opcode.toString(16)} is not supported`, at);
  }
}

function skipMemoryArgument(reader: Reader): void {
  const flags = reader.u32();
  // Flag 64 says that the index of a memory follows.
  if (flags & 64) reader.skipLeb();
  reader.skipLeb();
}

function readTryTable(reader: Reader, into: Instruction): void {
  skipBlockType(reader);
  for (let left = reader.u32(); left > 0; left -= 1) {
    const kind = reader.byte();
    if (kind > 3) throw new WasmError(`catch clause ${kind} is not supported`, reader.at);
    // Kinds 0 and 1 name an exception tag; 2 and 3 catch everything.
    if (kind < 2) reader.skipLeb();
    into.labels.push(reader.u32());
  }
}

function readBulk(reader: Reader, into: Instruction, at: number): void {
  const { sub } = into;
  // Instructions 0 to 7 convert numbers and have no immediates.
  if (sub <= 7) return;
  if (sub > BULK.tableFill) throw new WasmError(`instruction 0xfc ${sub} is not supported`, at);
  into.index = reader.u32();
  // Initialisations and copies have a second index.
  const { memoryInit, memoryCopy, tableInit, tableCopy } = BULK;
  if (sub === memoryInit || sub === memoryCopy || sub === tableInit || sub === tableCopy) into.source = reader.u32();
}

/**
 * Skips the immediates of a vector instruction: 0 to 11, 92 and 93 load or store; 12 is a constant and 13 a shuffle; 21 to 34 access one lane;
 * 84 to 91 load or store one lane. The others up to 275 have none.
 */
function skipVector(reader: Reader, sub: number, at: number): void {
  if (sub <= 11 || sub === 92 || sub === 93) skipMemoryArgument(reader);
  else if (sub === 12 || sub === 13) reader.skip(16);
  else if (sub >= 21 && sub <= 34) reader.skip(1);
  else if (sub >= 84 && sub <= 91) {
    skipMemoryArgument(reader);
    reader.skip(1);
    return;
  }
  if (sub > 275) throw new WasmError(`instruction 0xfd ${sub} is not supported`, at);
}

function skipAtomic(reader: Reader, sub: number, at: number): void {
  // 3 is the fence; the others access memory.
  if (sub === 3) reader.skip(1);
  else if (sub <= 2 || (sub >= 0x10 && sub <= 0x4e)) skipMemoryArgument(reader);
  else throw new WasmError(`instruction 0xfe ${sub} is not supported`, at);
}
