/**
 * The other end of the fuel checks that `runtime/build` inserts into core modules. A metered module exports `pie_fuel` (a mutable i32
 * global, counted down at loop headers and function entries) and `pie_yield` (a table with one function, called when the fuel is 0).
 */

/** Checks between two looks at the clock: about 0.1 ms of interpreter loop. */
const FUEL = 20_000;

/** What the guest is to do when its fuel has run out. */
export const GO_ON = 0;
export const TRAP = 1;
export const WAIT = 2;

/**
 * Calls the first import; on `WAIT` the second, which suspends; anything but `GO_ON` in the end traps. A trap cannot be caught by the
 * guest, an exception could. Asking comes first because V8 refuses a suspending import, whatever it returns, on a stack that was not
 * entered through `promising` (a start function, an allocation for the host).
 *
 *     (func $ask (import "m" "a") (result i32)) (func $wait (import "m" "w") (result i32))
 *     (func (export "y") (local i32)
 *       (br_if 0 (i32.eqz (local.tee 0 (call $ask))))
 *       (br_if 0 (i32.eqz (if (result i32) (i32.eq (local.get 0) (i32.const 2)) (then (call $wait)) (else (i32.const 1)))))
 *       unreachable)
 */
const WRAPPER = new WebAssembly.Module(
  Uint8Array.of(
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...[1, 8, 2, 0x60, 0, 1, 0x7f, 0x60, 0, 0],
    ...[2, 13, 2, 1, 0x6d, 1, 0x61, 0, 0, 1, 0x6d, 1, 0x77, 0, 0],
    ...[3, 2, 1, 1],
    ...[7, 5, 1, 1, 0x79, 0, 2],
    ...[10, 30, 1, 28, 1, 1, 0x7f, 0x10, 0, 0x22, 0, 0x45, 0x0d, 0],
    ...[0x20, 0, 0x41, 2, 0x46, 0x04, 0x7f, 0x10, 1, 0x05, 0x41, 1, 0x0b, 0x45, 0x0d, 0, 0x00, 0x0b],
  ),
);

/** The fuel gauges of one instance's core modules. */
export class Fuel {
  readonly #gauges: WebAssembly.Global[] = [];
  readonly #yield: WebAssembly.ExportValue;

  /** `ask` and `wait` are called on the guest's stack and refill before they let it go on. `wait` promises `GO_ON`, or never resolves. */
  constructor(ask: () => number, wait: () => Promise<number>) {
    const instance = new WebAssembly.Instance(WRAPPER, { m: { a: ask, w: new WebAssembly.Suspending(wait) } });
    this.#yield = instance.exports.y as WebAssembly.ExportValue;
  }

  /** Takes charge of a core instance if it is metered. */
  adopt(exports: WebAssembly.Exports): boolean {
    const gauge = exports.pie_fuel;
    const table = exports.pie_yield;
    if (!(gauge instanceof WebAssembly.Global) || !(table instanceof WebAssembly.Table)) return false;
    table.set(0, this.#yield);
    gauge.value = FUEL;
    this.#gauges.push(gauge);
    return true;
  }

  get metered(): boolean {
    return this.#gauges.length > 0;
  }

  refill(): void {
    for (const gauge of this.#gauges) gauge.value = FUEL;
  }
}
