import { Reader } from './binary.ts';
import { skipLocals } from './call-graph.ts';
import { type Instruction, OP, readInstruction } from './instructions.ts';
import { readDefinitions } from './limits.ts';
import { readSections, SECTION, sectionBody } from './sections.ts';

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
