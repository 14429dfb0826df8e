import type { Fuel } from './fuel.ts';
import type { BlockingFunction } from './intrinsics.ts';

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
