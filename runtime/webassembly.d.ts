/** The parts of WebAssembly's JavaScript API that this project uses. TypeScript itself declares them only in its DOM library. */
declare namespace WebAssembly {
  type ExportValue = ((...args: never[]) => unknown) & object;
  type Exports = Record<string, unknown>;
  type ImportValue = unknown;
  type Imports = Record<string, Record<string, ImportValue>>;
  type ExternalKind = 'function' | 'table' | 'memory' | 'global' | 'tag';

  class Module {
    constructor(bytes: Uint8Array);
    static imports(module: Module): { module: string; name: string; kind: ExternalKind }[];
    static exports(module: Module): { name: string; kind: ExternalKind }[];
    static customSections(module: Module, name: string): ArrayBuffer[];
  }
  class Instance {
    constructor(module: Module, imports?: Imports);
    readonly exports: Exports;
  }
  class Memory {
    constructor(descriptor: { initial: number; maximum?: number });
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }
  class Table {
    readonly length: number;
    get(index: number): unknown;
    set(index: number, value: unknown): void;
  }
  class Global {
    constructor(descriptor: { value: 'i32' | 'i64'; mutable: boolean }, value: number | bigint);
    value: number | bigint;
  }
  class RuntimeError extends Error {}
  class CompileError extends Error {}
  class LinkError extends Error {}
  /** Wraps a function so that a guest that calls it is suspended until the function's promise resolves. */
  class Suspending {
    constructor(call: (...args: never[]) => unknown);
  }
  /** Wraps an export so that a call may be suspended; the call returns a promise. */
  function promising<Args extends unknown[]>(call: (...args: Args) => unknown): (...args: Args) => Promise<unknown>;
  function compile(bytes: Uint8Array): Promise<Module>;
  function validate(bytes: Uint8Array): boolean;
}
