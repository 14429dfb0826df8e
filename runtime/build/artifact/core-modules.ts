import { createHash } from 'node:crypto';
import { BuildError } from '../outcome.ts';
import { type DefinedMemory, readMemories } from '../wasm/growth.ts';
import { limit, MAX_TABLE_ELEMENTS, MEMORY_PAGE_BYTES, readDefinitions } from '../wasm/limits.ts';
import { meter } from '../wasm/meter.ts';
import { exposeState } from '../wasm/state.ts';
import type { CoreModule } from './meta-schema.ts';

export interface PreparedModule {
  readonly module: CoreModule;
  readonly bytes: Uint8Array;
}

const MAX_MODULES = 100;
const MAX_MEMORIES = 8;
const MAX_TABLES = 100;

/**
 * Meters the core modules of a component, and limits their memories and tables. All memories together can grow to `memoryPages`: the pages
 * above their minima are split evenly between the memories that can grow. All tables together can grow to MAX_TABLE_ELEMENTS: the elements
 * above their minima are split evenly between them. Every result is compiled once, so that an invalid module never reaches a runtime.
 */
export function prepareCoreModules(
  modules: ReadonlyMap<string, Uint8Array>,
  helpers: ReadonlyMap<string, Uint8Array>,
  memoryPages: number,
): PreparedModule[] {
  if (modules.size > MAX_MODULES) throw unsupported(`it has ${modules.size} core modules; ${MAX_MODULES} is the limit`);
  const memories = readMemories([...modules.values()]);
  const tables = [...modules.values()].flatMap((bytes) => readDefinitions(bytes).tables.map(({ min }) => min));
  const memorySpare = spareMemory(memories.flat(), memoryPages);
  const tableSpare = spareElements(tables);
  const prepared: PreparedModule[] = [];
  for (const [index, [file, source]] of [...modules].entries()) {
    checkNames(source);
    const pageLimits = (memories[index] ?? []).map(({ min, grows }) => min + (grows ? memorySpare : 0));
    const { bytes, checks } = meter(limit(source, pageLimits, tableSpare));
    prepared.push(finish(file, exposeState(bytes), checks > 0 ? 'program' : 'linkage', checks));
  }
  for (const [file, bytes] of helpers) prepared.push(finish(file, exposeState(bytes), 'helper', 0));
  return prepared;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

/** Pages that each growing memory gets above its minimum. */
function spareMemory(memories: readonly DefinedMemory[], memoryPages: number): number {
  const total = sum(memories.map(({ min }) => min));
  if (memories.length > MAX_MEMORIES)
    throw unsupported(`it has ${memories.length} memories; ${MAX_MEMORIES} is the limit`);
  if (total > memoryPages) {
    throw new BuildError(
      'build-failed',
      `The component needs ${megabytes(total)} of memory at its start; the limit is ${megabytes(memoryPages)}.`,
      'Raise `limits.memoryMb` in pie.json, or make the program need less at its start.',
    );
  }
  return Math.floor((memoryPages - total) / Math.max(1, memories.filter(({ grows }) => grows).length));
}

/** Elements that each table gets above its minimum. */
function spareElements(minima: readonly number[]): number {
  const total = sum(minima);
  if (minima.length > MAX_TABLES) throw unsupported(`it has ${minima.length} tables; ${MAX_TABLES} is the limit`);
  if (total > MAX_TABLE_ELEMENTS)
    throw unsupported(`its tables have ${total} elements; ${MAX_TABLE_ELEMENTS} is the limit`);
  return Math.floor((MAX_TABLE_ELEMENTS - total) / Math.max(1, minima.length));
}

const unsupported = (what: string): BuildError =>
  new BuildError('build-failed', `The component cannot be run here: ${what}.`, 'Build it as one ordinary component.');

const megabytes = (pages: number): string => `${Math.ceil((pages * MEMORY_PAGE_BYTES) / 2 ** 20)} MiB`;

function finish(file: string, bytes: Uint8Array, role: CoreModule['role'], checks: number): PreparedModule {
  // Throws when the module is not valid.
  new WebAssembly.Module(bytes.slice());
  const memoryPages = readDefinitions(bytes).memories.map(({ min, max }) => max ?? min);
  const hash = createHash('sha256').update(bytes).digest('hex');
  return { module: { file, hash, bytes: bytes.length, role, checks, memoryPages }, bytes };
}

/** Characters that cannot end a string literal: jco writes names of imports and exports into the glue between quotes. */
const SAFE_NAME = /^[\w\-.,:;@/#$%&*+=<>()[\]| ?!^~]*$/;

/** Refuses names that could end a string literal: core names may be any text, and planning an artifact runs the glue as JavaScript. */
function checkNames(bytes: Uint8Array): void {
  const module = new WebAssembly.Module(bytes.slice());
  const imports = WebAssembly.Module.imports(module).flatMap((entry) => [entry.module, entry.name]);
  const exports = WebAssembly.Module.exports(module).map((entry) => entry.name);
  const unsafe = [...imports, ...exports].find((name) => !SAFE_NAME.test(name));
  if (unsafe !== undefined) throw unsupported(`a core module uses the name ${JSON.stringify(unsafe)}`);
}
