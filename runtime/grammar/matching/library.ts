import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { compileFunction } from 'node:vm';
import type * as XGrammar from '@mlc-ai/web-xgrammar';
import { Reader } from '../../build/wasm/binary.ts';
import { limit, MEMORY_PAGE_BYTES } from '../../build/wasm/limits.ts';
import { readSections, SECTION, sectionBody } from '../../build/wasm/sections.ts';

/** One instance of the library: its classes and the memory that all its objects lie in. */
export interface Library {
  readonly xgrammar: typeof XGrammar;
  /** The last line that it wrote, which says why it gave up; then forgotten. */
  complaint(): string;
  /** Whether its stack has run over into its data: then nothing that it says counts any more. */
  overrun(): boolean;
}

/** Emscripten's stack, which the module keeps between its data and its heap, growing down. */
const STACK_BYTES = 64 << 10;
/** The farthest part of the stack, filled with a pattern: a frame that reaches it is about to reach the data. */
const GUARD_BYTES = 2048;
const GUARD = 0xa5a5a5a5;
/** A global's type, whether it changes, and the opcode of its constant. */
const GLOBAL_HEADER_BYTES = 3;

/**
 * Loads `@mlc-ai/web-xgrammar`. The package is a script that expects a browser or CommonJS while it declares itself a module, so its text is run
 * as a function. What it sees as globals are these parameters: it gets no `process`, so no file system, and a `WebAssembly` whose memory has an
 * upper bound.
 */
export async function loadLibrary(memoryBytes: number): Promise<Library> {
  const file = createRequire(import.meta.url).resolve('@mlc-ai/web-xgrammar');
  const script = compileFunction(
    readFileSync(file, 'utf8'),
    ['exports', 'module', 'process', 'location', 'WebAssembly', 'console'],
    { filename: file },
  );
  let look = (): Uint32Array => new Uint32Array(0);
  const assembly = Object.create(WebAssembly, {
    instantiate: {
      value: async (bytes: Uint8Array, imports: WebAssembly.Imports) => {
        const limited = limit(bytes, [Math.floor(memoryBytes / MEMORY_PAGE_BYTES)], 0);
        const module = await WebAssembly.compile(limited);
        const instance = new WebAssembly.Instance(module, imports);
        const memory = Object.values(instance.exports).find((value) => value instanceof WebAssembly.Memory);
        if (!memory) throw new Error('web-xgrammar exports no memory; is it the version that package.json pins?');
        look = () => new Uint32Array(memory.buffer, stackTop(limited) - STACK_BYTES, GUARD_BYTES / 4);
        return { instance, module };
      },
    },
  });
  let last = '';
  const write = (...parts: readonly unknown[]): void => {
    const line = parts.join(' ');
    if (!line.startsWith('Aborted')) last = line;
  };
  const exports = {};
  script(exports, { exports }, undefined, { href: 'file:///xgrammar/index.js' }, assembly, {
    log: write,
    warn: write,
    error: write,
  });
  const xgrammar = exports as typeof XGrammar;
  // The module is instantiated by its first use.
  (await xgrammar.Grammar.fromEBNF('root ::= "a"')).dispose();
  look().fill(GUARD);
  return {
    xgrammar,
    complaint: () => {
      const line = last.replace(/^\[\w+\] \S+: /, '');
      last = '';
      return line;
    },
    overrun: () => look().some(isOverwritten),
  };
}

function isOverwritten(word: number): boolean {
  return word !== GUARD;
}

/** Where the stack begins: the value of Emscripten's first global. */
function stackTop(bytes: Uint8Array): number {
  const globals = new Reader(sectionBody(readSections(bytes), SECTION.global));
  globals.u32();
  globals.skip(GLOBAL_HEADER_BYTES);
  return globals.u32();
}
