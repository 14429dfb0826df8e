import { createHash } from 'node:crypto';
import { BuildError } from '../outcome.ts';
import { limit, MAX_TABLE_ELEMENTS, MEMORY_PAGE_BYTES, readDefinitions } from '../wasm/limits.ts';
import { meter } from '../wasm/meter.ts';

/** One core module of an artifact. */
export interface CoreModule {
  /** Name that the glue asks `getCoreModule` for. */
  readonly file: string;
  /** sha256 of its bytes: equal modules of different artifacts (the JavaScript engine) can share one `WebAssembly.Module`. */
  readonly hash: string;
  readonly bytes: number;
  /** `program` has fuel checks and exports `pie_fuel` and `pie_yield`; `linkage` only connects others; `helper` is jco's own. */
  readonly role: 'program' | 'linkage' | 'helper';
  /** Fuel checks inserted. */
  readonly checks: number;
  /** Maximum of each memory that it defines, in pages of 64 KiB. */
  readonly memoryPages: readonly number[];
}

export interface PreparedModule {
  readonly module: CoreModule;
  readonly bytes: Uint8Array;
}

const MAX_MODULES = 100;
const MAX_MEMORIES = 8;
const MAX_TABLES = 100;

/**
 * Meters and limits the core modules of a component. All their memories together can grow to `memoryPages`, all tables to
 * MAX_TABLE_ELEMENTS: what is left above their minima is split evenly. Every result is compiled once, so that what does not validate
 * never reaches a runtime.
 */
export function prepareCoreModules(
  modules: ReadonlyMap<string, Uint8Array>,
  helpers: ReadonlyMap<string, Uint8Array>,
  memoryPages: number,
): PreparedModule[] {
  if (modules.size > MAX_MODULES) throw unsupported(`it has ${modules.size} core modules; ${MAX_MODULES} is the most`);
  const defined = [...modules.values()].map(readDefinitions);
  const memories = share(defined.flatMap((entry) => entry.memories.map(({ min }) => min)));
  const tables = share(defined.flatMap((entry) => entry.tables.map(({ min }) => min)));
  if (memories.count > MAX_MEMORIES)
    throw unsupported(`it has ${memories.count} memories; ${MAX_MEMORIES} is the most`);
  if (memories.total > memoryPages) {
    throw new BuildError(
      'build-failed',
      `The component needs ${megabytes(memories.total)} of memory at its start; the limit is ${megabytes(memoryPages)}.`,
      'Raise `limits.memoryMb` in pie.json, or make the program need less at its start.',
    );
  }
  if (tables.count > MAX_TABLES || tables.total > MAX_TABLE_ELEMENTS) {
    throw unsupported(`its tables have ${tables.total} elements; ${MAX_TABLE_ELEMENTS} is the most`);
  }
  const prepared: PreparedModule[] = [];
  for (const [file, source] of modules) {
    checkNames(source);
    const limited = limit(source, memories.most(memoryPages), tables.most(MAX_TABLE_ELEMENTS));
    const { bytes, checks } = meter(limited);
    prepared.push(finish(file, bytes, checks > 0 ? 'program' : 'linkage', checks));
  }
  for (const [file, bytes] of helpers) prepared.push(finish(file, bytes, 'helper', 0));
  return prepared;
}

const unsupported = (what: string): BuildError =>
  new BuildError('build-failed', `The component cannot be run here: ${what}.`, 'Build it as one ordinary component.');

const megabytes = (pages: number): string => `${Math.ceil((pages * MEMORY_PAGE_BYTES) / 2 ** 20)} MiB`;

/** How much each of several may grow so that together they stay below a limit. */
function share(minima: readonly number[]) {
  const total = minima.reduce((sum, min) => sum + min, 0);
  return {
    count: minima.length,
    total,
    most: (limitOfAll: number) => (min: number) => min + Math.floor((limitOfAll - total) / Math.max(1, minima.length)),
  };
}

function finish(file: string, bytes: Uint8Array, role: CoreModule['role'], checks: number): PreparedModule {
  new WebAssembly.Module(bytes.slice());
  const memoryPages = readDefinitions(bytes).memories.map(({ min, max }) => max ?? min);
  const hash = createHash('sha256').update(bytes).digest('hex');
  return { module: { file, hash, bytes: bytes.length, role, checks, memoryPages }, bytes };
}

/** Names that jco writes into the glue between quotes. */
const SAFE_NAME = /^[\w\-.,:;@/#$%&*+=<>()[\]| ?!^~]*$/;

/** Refuses names that could end a string literal: the glue is JavaScript that runs in the runtime, and core names are any text at all. */
function checkNames(bytes: Uint8Array): void {
  const module = new WebAssembly.Module(bytes.slice());
  const imports = WebAssembly.Module.imports(module).flatMap((entry) => [entry.module, entry.name]);
  const exports = WebAssembly.Module.exports(module).map((entry) => entry.name);
  const unsafe = [...imports, ...exports].find((name) => !SAFE_NAME.test(name));
  if (unsafe !== undefined) throw unsupported(`a core module uses the name ${JSON.stringify(unsafe)}`);
}
