/**
 * The other end of the fuel checks that `runtime/build` inserts into core modules. A metered module exports `pie_fuel` (a mutable i32
 * global, counted down at loop headers and function entries) and `pie_yield` (a table with one function, called when the fuel is 0).
 */

/** Checks between two looks at the clock: about 0.1 ms of interpreter loop. */
const FUEL = 20_000;

/** `(import "m" "y" (func (result i32))) (export "y" (func))`: calls the import and traps unless it returns 0. A trap cannot be caught by the guest; an exception could. */
const WRAPPER = new WebAssembly.Module(
  Uint8Array.of(
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...[1, 8, 2, 0x60, 0, 1, 0x7f, 0x60, 0, 0],
    ...[2, 7, 1, 1, 0x6d, 1, 0x79, 0, 0],
    ...[3, 2, 1, 1],
    ...[7, 5, 1, 1, 0x79, 0, 1],
    ...[10, 11, 1, 9, 0, 0x10, 0, 0x04, 0x40, 0x00, 0x0b, 0x0b],
  ),
);

/** The fuel gauges of one instance's core modules. */
export class Fuel {
  readonly #gauges: WebAssembly.Global[] = [];
  readonly #yield: WebAssembly.ExportValue;

  /** `onEmpty` is called on the guest's stack; it refills and returns 0 to go on (or promises it, which suspends), anything else traps. */
  constructor(onEmpty: () => number | Promise<number>) {
    const suspending = new WebAssembly.Suspending(onEmpty);
    this.#yield = new WebAssembly.Instance(WRAPPER, { m: { y: suspending } }).exports.y as WebAssembly.ExportValue;
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
