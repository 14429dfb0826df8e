import {
  appendEntry,
  entryCount,
  leb,
  nameBytes,
  Reader,
  readSections,
  SECTION,
  type Section,
  sectionBody,
  writeSections,
} from './binary.ts';
import { skipLocals } from './call-graph.ts';
import { BULK, I32, I32_CONST, type Instruction, OP, readInstruction } from './instructions.ts';
import { skipExpression } from './limits.ts';
import { PIE_EXPORTS, stateName } from './names.ts';
import { readImports, skipValueType } from './types.ts';

const TABLE_SET = 0x26;
/** Types of globals whose values JavaScript can read and write: i32, i64, f32, f64. */
const NUMBERS: ReadonlySet<number> = new Set([0x7f, 0x7e, 0x7d, 0x7c]);
// Kinds of exports.
const MEMORY_KIND = 2;
const GLOBAL_KIND = 3;

/** Bulk instructions that change tables or segments. */
const STATE_CHANGING: ReadonlySet<number> = new Set([
  BULK.dataDrop,
  BULK.tableInit,
  BULK.elemDrop,
  BULK.tableCopy,
  BULK.tableGrow,
  BULK.tableFill,
]);

/**
 * Exports the state that an instance changes while it runs, so that the host can restore the instance. The state is the memories and the mutable
 * globals that the module defines. The export `pie_restorable` marks a module with only such state. A module that changes other state (its tables,
 * its segments, globals that hold references or vectors) has no mark and exports only its memories, whose size the host counts.
 *
 * @param bytes a metered module
 */
export function exposeState(bytes: Uint8Array): Uint8Array {
  let sections: readonly Section[] = readSections(bytes);
  const imports = readImports(new Reader(sectionBody(sections, SECTION.import)));
  const mutable = mutableGlobals(new Reader(sectionBody(sections, SECTION.global)));
  // Null when the host cannot restore the instance.
  const globals = changesTablesOrSegments(new Reader(sectionBody(sections, SECTION.code))) ? null : mutable;
  const memories = entryCount(sections, SECTION.memory);
  if (globals === null && memories === 0) return bytes;
  const state = [
    ...Array.from({ length: memories }, (_, i) => [MEMORY_KIND, imports.memories + i] as const),
    ...(globals ?? []).map((index) => [GLOBAL_KIND, imports.globals + index] as const),
  ];
  const entry = (name: string, kind: number, index: number) => [...nameBytes(name), kind, ...leb(index)];
  if (globals !== null) {
    // The mark is a constant global of 1; its existence, not its value, counts.
    const mark = imports.globals + entryCount(sections, SECTION.global);
    sections = appendEntry(sections, SECTION.global, [I32, 0, I32_CONST, 1, OP.end]);
    sections = appendEntry(sections, SECTION.export, entry(PIE_EXPORTS.restorable, GLOBAL_KIND, mark));
  }
  for (const [i, [kind, index]] of state.entries()) {
    sections = appendEntry(sections, SECTION.export, entry(stateName(i), kind, index));
  }
  return writeSections(sections);
}

/** Indices of a module's own mutable globals; null when JavaScript cannot copy the value of one of these globals. */
function mutableGlobals(reader: Reader): number[] | null {
  const mutable: number[] = [];
  const count = reader.u32();
  for (let i = 0; i < count; i += 1) {
    const type = reader.bytes[reader.at] ?? 0;
    skipValueType(reader);
    const isMutable = reader.byte() === 1;
    skipExpression(reader);
    if (!isMutable) continue;
    if (!NUMBERS.has(type)) return null;
    mutable.push(i);
  }
  return mutable;
}

/** True when code changes tables or segments. */
function changesTablesOrSegments(code: Reader): boolean {
  const instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };
  for (let left = code.u32(); left > 0; left -= 1) {
    const body = code.slice(code.u32());
    skipLocals(body, 0);
    while (!body.done) {
      readInstruction(body, instruction);
      const { opcode, sub } = instruction;
      if (opcode === TABLE_SET || (opcode === OP.bulk && STATE_CHANGING.has(sub))) return true;
    }
  }
  return false;
}
