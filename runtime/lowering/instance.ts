import { type CompiledWorld, importKey } from './compile.ts';
import { type Entry, Execution, type ExecutionOptions } from './execution.ts';
import type { Fuel } from './fuel.ts';
import type { Guest } from './guest.ts';
import { applyHeap, type Heap } from './heap.ts';
import {
  type BlockingFunction,
  type CoreFunction,
  futureIntrinsic,
  parseFutureIntrinsic,
  rootIntrinsic,
} from './intrinsics.ts';
import type { Location, Plan, Source } from './plan.ts';

/** Limits of a memory in pages of 64 KiB. */
export interface MemoryLimits {
  readonly minimum: number;
  readonly maximum: number;
}

/** A component ready for instantiation: its plan and its compiled core modules by file name. */
export interface Program {
  readonly plan: Plan;
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
  /** The memory that the host makes for an instance, in pages; absent when the modules define theirs. */
  readonly memory?: MemoryLimits;
  /** What a script changed in the memory of the program's new instance; absent for a component that is a function by itself. */
  readonly heap?: Heap;
}

/**
 * Makes an instance of a program, whose imports are the host functions of `world`. Throws when a start function of the guest traps,
 * and HeapError when the heap does not fit the instance's memory.
 * The instance runs when `start` is called; `guest.context` must be set before.
 */
export function instantiate(program: Program, world: CompiledWorld, options: ExecutionOptions): Execution {
  const execution = new Execution(world, options);
  const { guest } = execution;
  execution.instantiate(() => {
    const linked = link({
      plan: program.plan,
      modules: program.modules,
      memory: program.memory,
      resolve: (module, name) => resolve(execution, world, module, name),
      onInstance: ({ exports }) => {
        execution.fuel.adopt(exports);
        execution.state.add(exports);
      },
      onGlobal: (global) => execution.state.addGlobal(global),
      trap: (module, name) => {
        if (module === 'actual') return unreachable;
        const refuse = () => {
          guest.enter();
          return guest.trap(`the inferlet called ${module} ${name}, which no inferlet is given`);
        };
        return stderrStub(guest, module, name) ?? refuse;
      },
    });
    if (program.heap) applyHeap(program.heap, linked.memory);
    guest.attach(linked.memory, linked.realloc);
    return linked.entry;
  });
  return execution;
}

/** Fills slots of a function table that no import needs. `bypassShims` in `record.ts` explains these slots and the module `actual`. */
const unreachable = (): never => {
  throw new WebAssembly.RuntimeError('unreachable');
};

/** Returns the function for an import: a host function, an intrinsic of the canonical ABI, or a function that traps. */
function resolve(execution: Execution, world: CompiledWorld, module: string, name: string): WebAssembly.ImportValue {
  const { guest } = execution;
  const make = world.functions.get(importKey(module, name));
  const fn = make ? make(guest) : intrinsic(execution, world, module, name);
  if (fn) return typeof fn === 'function' ? (fn as WebAssembly.ImportValue) : blockingImport(fn, execution.fuel);
  return () => {
    guest.enter();
    return guest.trap(`the contract has no ${module} ${name}`);
  };
}

/** Returns an intrinsic of the canonical ABI for futures, waits and tasks; null for an unknown name. */
function intrinsic(execution: Execution, world: CompiledWorld, module: string, name: string): CoreFunction | null {
  const future = parseFutureIntrinsic(name);
  if (!future) return rootIntrinsic(execution.guest, execution, name);
  const type = world.futures.get(importKey(module, future.of))?.[future.index];
  return type ? futureIntrinsic(execution.guest, execution, future.operation, future.async, type) : null;
}

/** Finds the platform function behind an import (`pie:inferlet/queue@0.1.0`, `[method]queue.synchronize`). */
export type Resolve = (module: string, name: string) => WebAssembly.ImportValue;

export interface Linked {
  readonly entry: Entry;
  readonly memory: WebAssembly.Memory;
  readonly realloc: ((old: number, oldSize: number, align: number, size: number) => number) | null;
}

export interface LinkOptions {
  readonly plan: Plan;
  /** Compiled core modules by file name. */
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
  /** The memory of imports whose source is the kind `memory`. */
  readonly memory?: MemoryLimits | undefined;
  readonly resolve: Resolve;
  /** Called with each core instance before the next one is made. */
  readonly onInstance: (instance: WebAssembly.Instance) => void;
  /** Called with each mutable global that is made for the component. */
  readonly onGlobal: (global: WebAssembly.Global) => void;
  /** Returns the function for an import that the plan maps to a trap: it traps, or stands in for WASI's standard error. */
  readonly trap: (module: string, name: string) => WebAssembly.ImportValue;
}

/** An object without a prototype: the guest chooses the keys, and every key, even `__proto__`, is a plain property. */
const table = <T>(): Record<string, T> => Object.create(null) as Record<string, T>;

/** Instantiates a component by its plan. Throws the errors of the guest's start functions. */
export function link({ plan, modules, memory, resolve, onInstance, onGlobal, trap }: LinkOptions): Linked {
  const instances: WebAssembly.Instance[] = [];
  const globals: WebAssembly.Global[] = [];
  const exported = ({ instance, name }: Location): unknown => {
    const value = instances[instance]?.exports[name];
    if (value === undefined) throw new TypeError(`instance ${instance} of the plan has no export ${name}`);
    return value;
  };
  const importValue = (source: Source, module: string, name: string): WebAssembly.ImportValue => {
    switch (source.kind) {
      case 'export':
        return exported(source);
      case 'host':
        return resolve(module, name);
      case 'trap':
        return trap(module, name);
      case 'memory':
        if (memory === undefined) throw new TypeError('the program states no memory, which its plan imports');
        return new WebAssembly.Memory({ initial: memory.minimum, maximum: memory.maximum }) as WebAssembly.ImportValue;
      case 'global': {
        let global = globals[source.id];
        if (!global) {
          const initial = source.type === 'i64' ? BigInt(source.value) : source.value;
          global = new WebAssembly.Global({ value: source.type, mutable: source.mutable }, initial as never);
          globals[source.id] = global;
          if (source.mutable) onGlobal(global);
        }
        return global;
      }
    }
  };
  for (const planned of plan.instances) {
    const module = modules.get(planned.module);
    if (!module) throw new TypeError(`the program has no module ${planned.module}, which its plan names`);
    const imports = table<Record<string, WebAssembly.ImportValue>>();
    for (const item of planned.imports) {
      const fields = imports[item.module] ?? table();
      imports[item.module] = fields;
      fields[item.name] = importValue(item.source, item.module, item.name);
    }
    const instance = new WebAssembly.Instance(module, imports);
    instances.push(instance);
    onInstance(instance);
  }
  const { entry } = plan;
  return {
    entry: {
      form: entry.form,
      run: exported(entry.run) as Entry['run'],
      callback: entry.callback ? (exported(entry.callback) as Entry['callback']) : null,
    },
    memory: exported(entry.memory) as unknown as WebAssembly.Memory,
    realloc: entry.realloc ? (exported(entry.realloc) as unknown as Linked['realloc']) : null,
  };
}

/**
 * The module of a core function that may suspend the guest. Only the wait itself is a suspending import, because V8 suspends at each call of
 * such an import, even when it returns at once, and resumes the guest in a later microtask. First, `begin` returns true if the guest must
 * wait. After a wait, `check` (the function `yield` of the guest's `Fuel`) runs on the guest's stack: it starts the clock of the guest's CPU time
 * again, and traps when the guest must stop. Finally, with or without a wait, `end` returns the result.
 *
 *     (func $begin (import "m" "b") (param i32…) (result i32)) (func $wait (import "m" "w"))
 *     (func $check (import "m" "y")) (func $end (import "m" "e") (param i32…) (result i32)?)
 *     (func (export "f") (param i32…) (result i32)?
 *       (if (call $begin (local.get 0)…) (then (call $wait) (call $check))) (call $end (local.get 0)…))
 */
function wrapper(params: number, results: number): WebAssembly.Module {
  const key = `${params} ${results}`;
  const cached = wrappers.get(key);
  if (cached) return cached;
  const i32 = (count: number) => [count, ...new Array<number>(count).fill(0x7f)];
  const section = (id: number, content: readonly number[]) => [id, content.length, ...content];
  const types = [
    [0x60, ...i32(params), ...i32(1)],
    [0x60, 0, 0],
    [0x60, ...i32(params), ...i32(results)],
  ];
  const imported = (name: string, type: number) => [1, 0x6d, 1, name.charCodeAt(0), 0, type];
  const get = Array.from({ length: params }, (_, index) => [0x20, index]).flat();
  // 0x20 is `local.get`, 0x10 `call`, 0x04 0x40 `if` without a result, and 0x0b `end`.
  const body = [0, ...get, 0x10, 0, 0x04, 0x40, 0x10, 1, 0x10, 2, 0x0b, ...get, 0x10, 3, 0x0b];
  const module = new WebAssembly.Module(
    // The header, and the sections for types (1), imports (2), functions (3), exports (7) and code (10).
    Uint8Array.of(
      ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      ...section(1, [types.length, ...types.flat()]),
      ...section(2, [4, ...imported('b', 0), ...imported('w', 1), ...imported('y', 1), ...imported('e', 2)]),
      ...section(3, [1, 2]),
      ...section(7, [1, 1, 0x66, 0, 4]),
      ...section(10, [1, body.length, ...body]),
    ),
  );
  wrappers.set(key, module);
  return module;
}

/** Keyed by numbers of parameters and results: at most 16 and 1, so each section's length is one byte. */
const wrappers = new Map<string, WebAssembly.Module>();

/** Converts a blocking function into an import for a core module. */
export function blockingImport(
  { params, results, begin, wait, end }: BlockingFunction,
  fuel: Fuel,
): WebAssembly.ImportValue {
  const imports = { b: begin, w: new WebAssembly.Suspending(wait), y: fuel.yield as WebAssembly.ImportValue, e: end };
  return new WebAssembly.Instance(wrapper(params, results), { m: imports as never }).exports
    .f as WebAssembly.ImportValue;
}

/** Maximum characters of a guest's standard error that are kept. */
const MAX_STDERR = 4096;

const STDERR_HANDLE = 1;
/** Number of bytes that the stub accepts at once. */
const ROOM = 65_536n;

/**
 * Replaces the parts of WASI through which a language runtime reports a panic, so that the user sees the reason: `guest.stderr` keeps the
 * output. Returns null for any other import.
 */
export function stderrStub(guest: Guest, module: string, name: string): WebAssembly.ImportValue | null {
  // Does not call `enter`: a language runtime may report from its allocator, where other imports trap.
  const begin = (): void => {
    guest.refresh();
    guest.resetLifting();
  };
  if (module.startsWith('wasi:cli/stderr@') && name === 'get-stderr') return () => STDERR_HANDLE;
  if (module.startsWith('wasi:cli/environment@') && name === 'get-environment') {
    // A panicking Rust runtime asks for RUST_BACKTRACE. The stub returns no variables: an empty list, whose address need only be aligned.
    return (result: number) => {
      begin();
      const address = guest.range(result, 8, 4) >>> 2;
      guest.u32[address] = 4;
      guest.u32[address + 1] = 0;
    };
  }
  // The first byte of these results is the case: 0 is `none` for the terminal, and `ok` for the streams below.
  if (module.startsWith('wasi:cli/terminal-stderr@') && name === 'get-terminal-stderr') {
    return (result: number) => {
      begin();
      guest.u8[guest.range(result, 8, 4)] = 0;
    };
  }
  if (!module.startsWith('wasi:io/streams@')) return null;
  switch (name) {
    case '[method]output-stream.check-write':
      return (_stream: number, result: number) => {
        begin();
        const address = guest.range(result, 16, 8);
        guest.u8[address] = 0;
        guest.u64[(address + 8) >>> 3] = ROOM;
      };
    case '[method]output-stream.write':
    case '[method]output-stream.blocking-write-and-flush':
      return (_stream: number, pointer: number, length: number, result: number) => {
        begin();
        const bytes = guest.listU8(pointer, length).subarray(0, MAX_STDERR - guest.stderr.length);
        guest.stderr += new TextDecoder().decode(bytes);
        guest.u8[guest.range(result, 12, 4)] = 0;
      };
    case '[method]output-stream.blocking-flush':
    case '[method]output-stream.flush':
      return (_stream: number, result: number) => {
        begin();
        guest.u8[guest.range(result, 12, 4)] = 0;
      };
    case '[resource-drop]output-stream':
      return () => undefined;
    default:
      return null;
  }
}
