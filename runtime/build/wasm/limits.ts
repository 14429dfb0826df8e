import {
  appendEntry,
  leb,
  nameBytes,
  Reader,
  readSections,
  SECTION,
  type Section,
  sectionBody,
  WasmError,
  Writer,
  withSection,
  writeSections,
} from './binary.ts';
import { skipLocals } from './call-graph.ts';
import { type Instruction, OP, readInstruction } from './instructions.ts';
import { type Limits, readImports, readLimits, skipValueType } from './types.ts';

/** Bytes of a page of linear memory. */
export const MEMORY_PAGE_BYTES = 65536;
/** Maximum number of elements in all tables of a component: 16 times the QuickJS engine's need. An element takes 8 bytes. */
export const MAX_TABLE_ELEMENTS = 65536;

/** Memories and tables that a module defines itself, without its imports. */
interface Definitions {
  readonly memories: readonly Limits[];
  readonly tables: readonly Limits[];
}

/** Memories and tables that a core module defines. Throws WasmError for shared, 64-bit and malformed memories or tables. */
export function readDefinitions(bytes: Uint8Array): Definitions {
  const sections = readSections(bytes);
  const memories = new Reader(sectionBody(sections, SECTION.memory));
  const tables = new Reader(sectionBody(sections, SECTION.table));
  return {
    memories: Array.from({ length: readCount(memories) }, () => readLimits(memories)),
    tables: Array.from({ length: readCount(tables) }, () => readTable(tables).limits),
  };
}

/** Maximum memories, and maximum tables, of a core module that V8 compiles. */
const MAX_DEFINITIONS = 100_000;

/** Reads a count. Refuses a count that V8 refuses, and one that exceeds the section's bytes, because each entry takes at least one byte. */
function readCount(reader: Reader): number {
  const count = reader.u32();
  if (count > Math.min(reader.end, MAX_DEFINITIONS))
    throw new WasmError('section shorter than its count, or too many entries', reader.at);
  return count;
}

/**
 * Gives the memories and tables of a module a maximum: that of each memory is in `memoryPages`, that of a table is its minimum plus `spareElements`.
 * A smaller maximum of the module itself stays. At the maximum, `memory.grow` and `table.grow` answer -1, as when memory is short.
 */
export function limit(bytes: Uint8Array, memoryPages: readonly number[], spareElements: number): Uint8Array {
  let sections: Section[] = readSections(bytes);
  const rewrite = (id: number, entry: (reader: Reader, out: Writer, index: number) => void) => {
    if (!sections.some((section) => section.id === id)) return;
    const reader = new Reader(sectionBody(sections, id));
    const count = reader.u32();
    const out = new Writer(reader.end + 64);
    out.push(leb(count));
    for (let i = 0; i < count; i += 1) entry(reader, out, i);
    if (!reader.done) throw new WasmError('bytes after the last entry', reader.at);
    sections = withSection(sections, id, out.bytes());
  };
  rewrite(SECTION.memory, (reader, out, index) => {
    const limits = readLimits(reader);
    out.push(bound(limits, memoryPages[index] ?? limits.min));
  });
  rewrite(SECTION.table, (reader, out) => {
    const { before, limits, after } = readTable(reader);
    out.push(before);
    out.push(bound(limits, limits.min + spareElements));
    out.push(after);
  });
  return writeSections(sections);
}

/** Mark of limits with a maximum. */
const WITH_MAXIMUM = 1;

/** The limits of a memory or table in binary form. Their maximum is at most `highest`, but never less than the minimum. */
function bound({ min, max }: Limits, highest: number): number[] {
  return [WITH_MAXIMUM, ...leb(min), ...leb(Math.max(min, Math.min(max ?? highest, highest)))];
}

interface Table {
  /** The element type; in a table with an initial value, two marker bytes precede it. */
  readonly before: Uint8Array;
  readonly limits: Limits;
  /** The expression of the initial value; empty without one. */
  readonly after: Uint8Array;
}

/** First of two bytes that mark a table with an initial value. */
const TABLE_WITH_VALUE = 0x40;

function readTable(reader: Reader): Table {
  const start = reader.at;
  const hasValue = reader.bytes[start] === TABLE_WITH_VALUE;
  if (hasValue) reader.skip(2);
  skipValueType(reader);
  const limitsAt = reader.at;
  const limits = readLimits(reader);
  const valueAt = reader.at;
  if (hasValue) skipExpression(reader);
  return {
    before: reader.bytes.subarray(start, limitsAt),
    limits,
    after: reader.bytes.subarray(valueAt, reader.at),
  };
}

/** Skips a constant expression, which has no blocks. */
export function skipExpression(reader: Reader): void {
  const instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };
  do readInstruction(reader, instruction);
  while (instruction.opcode !== OP.end);
}

/** Name of the import that {@link importMemory} makes. */
export const MEMORY_IMPORT = { module: 'pie', name: 'memory' } as const;
/** Pages of a memory with addresses of 32 bits, the most that an import may state. */
const MAX_PAGES = 65_536;

/**
 * Turns the only memory of a module into an import, so that each instance's memory can have a limit of its own. Its index stays 0, and exports of
 * it stay. Throws WasmError for a module that has several memories, or imports one.
 */
export function importMemory(bytes: Uint8Array): { readonly bytes: Uint8Array; readonly minimum: number } {
  const sections = readSections(bytes);
  const imports = readImports(new Reader(sectionBody(sections, SECTION.import)));
  const [memory, ...others] = readDefinitions(bytes).memories;
  if (memory === undefined || others.length > 0 || imports.memories > 0)
    throw new WasmError('a module whose memory is imported must define exactly one', 0);
  const { module, name } = MEMORY_IMPORT;
  const entry = [
    ...nameBytes(module),
    ...nameBytes(name),
    MEMORY_KIND,
    WITH_MAXIMUM,
    ...leb(memory.min),
    ...leb(MAX_PAGES),
  ];
  const rest = sections.filter(({ id }) => id !== SECTION.memory);
  return { bytes: writeSections(appendEntry(rest, SECTION.import, entry)), minimum: memory.min };
}

/** A memory that a module defines. */
export interface DefinedMemory {
  readonly min: number;
  /** True when the component's code can grow the memory. A wrong `false` is safe: the memory then keeps its size. */
  readonly grows: boolean;
}

interface Module {
  readonly definedMins: readonly number[];
  /** Names of the module's memories, by index: import names of imported memories, export names of defined ones. */
  readonly names: readonly (readonly string[])[];
  readonly importedCount: number;
  /** Indices of the memories that the module's code grows. */
  readonly grown: ReadonlySet<number>;
}

/**
 * Memories that the modules of a component define, module by module. A memory can grow in two cases: the code of its module has `memory.grow`
 * for it, or any module imports a memory under one of this memory's export names and has `memory.grow` for the import.
 */
export function readMemories(modules: readonly Uint8Array[]): DefinedMemory[][] {
  const parsedModules = modules.map(readModule);
  const grownNames = new Set(
    parsedModules.flatMap(({ names, importedCount, grown }) =>
      names.filter((_, index) => index < importedCount && grown.has(index)).flat(),
    ),
  );
  return parsedModules.map(({ definedMins, names, importedCount, grown }) =>
    definedMins.map((min, definedIndex) => {
      const index = importedCount + definedIndex;
      const grows = grown.has(index) || names[index]?.some((name) => grownNames.has(name));
      return { min, grows: grows === true };
    }),
  );
}

const MEMORY_KIND = 2;

function readModule(bytes: Uint8Array): Module {
  const definedMins = readDefinitions(bytes).memories.map(({ min }) => min);
  const module = new WebAssembly.Module(bytes.slice());
  const names: string[][] = WebAssembly.Module.imports(module)
    .filter(({ kind }) => kind === 'memory')
    .map(({ name }) => [name]);
  const importedCount = names.length;
  if (importedCount + definedMins.length === 0) return { definedMins, names, importedCount, grown: new Set() };
  for (let i = 0; i < definedMins.length; i += 1) names.push([]);
  const exports = new Reader(sectionBody(readSections(bytes), SECTION.export));
  for (let left = exports.u32(); left > 0; left -= 1) {
    const name = exports.name();
    const kind = exports.byte();
    const index = exports.u32();
    if (kind === MEMORY_KIND && index >= importedCount) names[index]?.push(name);
  }
  return { definedMins, names, importedCount, grown: grownIn(bytes) };
}

/** Indices of the memories that a module's code grows. */
function grownIn(bytes: Uint8Array): Set<number> {
  const grown = new Set<number>();
  const instruction: Instruction = { opcode: 0, sub: 0, labels: [], index: 0, source: 0 };
  const code = new Reader(sectionBody(readSections(bytes), SECTION.code));
  for (let left = code.u32(); left > 0; left -= 1) {
    const body = code.slice(code.u32());
    skipLocals(body, 0);
    while (!body.done) {
      readInstruction(body, instruction);
      if (instruction.opcode === OP.memoryGrow) grown.add(instruction.index);
    }
  }
  return grown;
}
