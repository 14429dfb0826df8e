import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { $init, generate } from '@bytecodealliance/jco-transpile/component';
import { BuildError } from '../outcome.ts';
import { toolchain } from '../toolchain.ts';
import { WasmError } from '../wasm/binary.ts';
import {
  type DefinedMemory,
  limit,
  MAX_TABLE_ELEMENTS,
  MEMORY_PAGE_BYTES,
  readDefinitions,
  readMemories,
} from '../wasm/limits.ts';
import { meter } from '../wasm/meter.ts';
import { exposeState } from '../wasm/state.ts';
import { artifactHashOf, checkKind, GLUE_FILE, META_FILE, sha256, TYPE_FILE, TYPE_TEXT } from './artifact.ts';
import type { ArtifactMeta, ArtifactOptions, CoreModule } from './meta-schema.ts';
import { checkWorld } from './world.ts';

/**
 * Makes a component into an artifact: checks it, transpiles it with jco (JSPI, async `run`, asynchronous instantiation), rewrites the glue,
 * meters and limits its core modules, and writes everything into `directory`, which must not exist. Runs in the build process.
 */
export async function makeArtifact(
  component: Uint8Array,
  directory: string,
  options: ArtifactOptions,
): Promise<ArtifactMeta> {
  const clock = stopwatch();
  checkKind(component);
  const imports = await asBuildError(() => checkWorld(component));
  const checkMs = clock();
  await $init;
  const { glue, modules } = await asBuildError(async () => transpile(component));
  const transpileMs = clock();
  const prepared = await asBuildError(async () => prepareCoreModules(modules, glue.helpers, options.memoryPages));
  const meterMs = clock();

  await mkdir(directory);
  await writeFile(join(directory, GLUE_FILE), glue.source);
  await writeFile(join(directory, TYPE_FILE), TYPE_TEXT);
  for (const { module, bytes } of prepared) await writeFile(join(directory, module.file), bytes);
  const meta: ArtifactMeta = {
    hash: artifactHashOf(sha256(component), options),
    component: { hash: sha256(component), bytes: component.length },
    options,
    toolchain: toolchain(),
    imports,
    coreModules: prepared.map(({ module }) => module),
    glue: { file: GLUE_FILE, bytes: Buffer.byteLength(glue.source), rewrites: glue.rewrites },
    timings: { checkMs, transpileMs, meterMs, writeMs: clock() },
    createdAt: new Date().toISOString(),
  };
  await writeFile(join(directory, META_FILE), `${JSON.stringify(meta, null, 2)}\n`);
  return meta;
}

function transpile(component: Uint8Array) {
  const { files } = generate(component, {
    name: 'app',
    instantiation: { tag: 'async' },
    asyncMode: { tag: 'jspi', val: { imports: [], exports: ['run'] } },
    noTypescript: true,
    noNodejsCompat: true,
    noNamespacedExports: false,
    base64Cutoff: 0,
  });
  const modules = new Map(files.filter(([name]) => name.endsWith('.wasm')));
  const source = files.find(([name]) => name === GLUE_FILE)?.[1];
  if (!source) throw new Error('jco made no glue');
  return { glue: rewriteGlue(new TextDecoder().decode(source)), modules };
}

/** Turns the tools' errors into a BuildError: their input is untrusted, so the component is at fault. */
async function asBuildError<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    if (error instanceof BuildError) throw error;
    if (error instanceof WasmError || error instanceof WebAssembly.CompileError || isComponentError(error)) {
      const what = error instanceof Error ? error.message : String(error);
      throw new BuildError(
        'build-failed',
        `The component is not valid or uses features that this platform does not run: ${what}`,
        'Check it with `wasm-tools validate --features all`; rebuild it without threads, 64-bit memory and garbage collection.',
      );
    }
    throw error;
  }
}

const isComponentError = (error: unknown): boolean =>
  error instanceof WebAssembly.RuntimeError ||
  (error instanceof Error && error.name === 'ComponentError') ||
  (error instanceof Error && error.constructor.name === 'ComponentError');

/** Returns a function that returns the milliseconds since its previous call; its first call returns those since `stopwatch()`. */
function stopwatch(): () => number {
  let last = performance.now();
  return () => {
    const now = performance.now();
    const passed = now - last;
    last = now;
    return Math.round(passed * 10) / 10;
  };
}

/** jco's rewritten glue, and the helper modules that jco had inlined. */
interface Glue {
  readonly source: string;
  /** Helper modules taken out of the source, by file name. */
  readonly helpers: ReadonlyMap<string, Uint8Array>;
  /** Rewrites that matched; a missing rewrite costs speed, never correctness. */
  readonly rewrites: readonly string[];
}

const INLINE_MODULE = /new WebAssembly\.Module\(new Uint8Array\(\[([^\]]*)\]\)\)/g;

/**
 * Rewrites jco's glue:
 * - Helper modules that jco inlined become files, which `getCoreModule` returns: the glue compiles no bytes (workerd
 *   forbids that), and a process compiles each module once. `getCoreModule` must not return a promise.
 * - A constant switches off debug calls: each would build its arguments and read `process.env`.
 * - Suspended tasks wake on events instead of polling every 10 ms; the poll stays as a fallback.
 */
function rewriteGlue(source: string): Glue {
  const helpers = new Map<string, Uint8Array>();
  const rewrites: string[] = [];
  let out = source.replace(INLINE_MODULE, (_, list: string) => {
    const bytes = list
      .split(',')
      .map((item) => item.trim())
      .filter(Boolean)
      .map(Number);
    const name = `glue${helpers.size}.wasm`;
    helpers.set(name, Uint8Array.from(bytes));
    return `getCoreModule('${name}')`;
  });
  if (/new (globalThis\.)?WebAssembly\.Module\(/.test(out)) throw new Error('jco made an inline module in a new way');
  for (const [name, rewrite] of [
    ['debug', disableDebugCalls],
    ['wake', wakeByEvent],
  ] as const) {
    const rewritten = rewrite(out);
    if (rewritten === null) continue;
    out = rewritten;
    rewrites.push(name);
  }
  return { source: out, helpers, rewrites };
}

function disableDebugCalls(source: string): string | null {
  if (!source.includes('const _debugLog = ')) return null;
  const calls = source.replace(/^(\s*)_debugLog\(/gm, '$1_DEBUG && _debugLog(');
  return `const _DEBUG = false;\n${calls}`;
}

// Passages of jco's glue that `wakeByEvent` changes. At EVENT, an event becomes ready. From LOOP_START to LOOP_END stands the loop that polls
// suspended tasks. STATES is the map of the objects that run such a loop.
const EVENT = 'this.#pendingEventFn = fn;';
const LOOP_START = 'async runTickLoop() {';
const LOOP_END = 'tick() {';
const STATES = 'const ASYNC_STATE = new Map();';

const LOOP = `poke() { const wake = this.wake; if (wake) { this.wake = null; wake(); } }

      async runTickLoop() {
        if (this.#tickLoop !== null) { this.poke(); return; }
        this.#tickLoop = 1;
        await _turn();
        let result = this.tick();
        while (result !== ComponentAsyncState.TickResult.DONE) {
          if (result === ComponentAsyncState.TickResult.IDLE) {
            _checkForDeadlock();
            await new Promise((resolve) => {
              const timer = setTimeout(resolve, 10);
              this.wake = () => { clearTimeout(timer); resolve(); };
            });
            this.wake = null;
          }
          await _turn();
          result = this.tick();
        }
        this.#tickLoop = null;
      }

      `;

const TURN = `
  const _turn = globalThis.setImmediate ? () => new Promise((resolve) => setImmediate(resolve)) : () => new Promise((resolve) => setTimeout(resolve, 0));
  const _pokeAll = () => { for (const state of ASYNC_STATE.values()) state.poke(); };`;

function wakeByEvent(source: string): string | null {
  const occursOnce = (text: string) => source.split(text).length === 2;
  if (![EVENT, LOOP_START, STATES].every(occursOnce)) return null;
  const start = source.indexOf(LOOP_START);
  const end = source.indexOf(LOOP_END, start + LOOP_START.length);
  if (end < 0 || !source.slice(start, end).includes('setTimeout(resolve, delay)')) return null;
  return `${source.slice(0, start)}${LOOP}${source.slice(end)}`
    .replace(EVENT, () => `${EVENT} _pokeAll();`)
    .replace(STATES, () => `${STATES}${TURN}`);
}

interface PreparedModule {
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
