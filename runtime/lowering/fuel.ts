/**
 * Runtime side of the fuel checks that `runtime/build` inserts into core modules. Fuel bounds how long a guest computes until the host decides
 * about it again. A metered module exports `pie_fuel` (a mutable i32 global, which loop headers and function entries count down) and
 * `pie_yield` (a table with one function, which a check calls when no fuel is left). The build turns the start function of any module into
 * the export `pie_start`, so that the start function, too, runs with fuel and its time is measured.
 */

/** Fuel that one refill gives: about 0.1 ms of an interpreter's loop. All core modules of an instance share this fuel. */
const FUEL = 20_000;

/** At a refill, a module with fuel left keeps at most 1/4 of its even share of `FUEL`. The division is a right shift by two bits. */
const KEPT_SHIFT = 2;

/** Decisions for a guest whose fuel has run out: it continues, it traps, or it is suspended until its turn comes. */
export const GO_ON = 0;
export const TRAP = 1;
export const WAIT = 2;

/**
 * The function behind `pie_yield`. It calls `ask`. On `WAIT`, it also calls `wait`, which suspends the guest, and then `resumed`. A final result
 * other than `GO_ON` executes `unreachable`: a trap, because the guest could catch an exception. V8 refuses a suspending import, whatever the
 * import returns, on a stack that was not entered through `promising` (a start function, an allocation for the host). So `ask`, which never
 * suspends, decides first. `resumed` runs on the guest's stack, so that the clock of the guest's CPU time starts when the guest continues, not
 * when a promise resolves.
 *
 *     (func $ask (import "m" "a") (result i32)) (func $wait (import "m" "w")) (func $resumed (import "m" "r") (result i32))
 *     (func (export "y") (local i32)
 *       (br_if 0 (i32.eqz (local.tee 0 (call $ask))))
 *       (br_if 0 (i32.eqz (if (result i32) (i32.eq (local.get 0) (i32.const 2)) (then (call $wait) (call $resumed)) (else (i32.const 1)))))
 *       unreachable)
 */
const WRAPPER = new WebAssembly.Module(
  // The text above in binary form: header, types, imports, function, export, and code in two lines.
  Uint8Array.of(
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...[1, 8, 2, 0x60, 0, 1, 0x7f, 0x60, 0, 0],
    ...[2, 19, 3, 1, 0x6d, 1, 0x61, 0, 0, 1, 0x6d, 1, 0x77, 0, 1, 1, 0x6d, 1, 0x72, 0, 0],
    ...[3, 2, 1, 1],
    ...[7, 5, 1, 1, 0x79, 0, 3],
    ...[10, 32, 1, 30, 1, 1, 0x7f, 0x10, 0, 0x22, 0, 0x45, 0x0d, 0],
    ...[0x20, 0, 0x41, 2, 0x46, 0x04, 0x7f, 0x10, 1, 0x10, 2, 0x05, 0x41, 1, 0x0b, 0x45, 0x0d, 0, 0x00, 0x0b],
  ),
);

/** The global `pie_fuel` of a core module: the module's remaining fuel. */
type Gauge = { value: number };

/** Decides how a guest continues when its fuel has run out. */
export interface FuelSource {
  /** Returns the decision. Refills the fuel before the guest continues. */
  readonly ask: () => number;
  /** Suspends the guest until its turn comes again. */
  readonly wait: () => Promise<unknown>;
  /** Called when the guest's stack runs again; returns `GO_ON` or `TRAP`. */
  readonly resumed: () => number;
}

/** The fuel of one instance, in the gauges of its core modules. */
export class Fuel {
  readonly #gauges: Gauge[] = [];
  readonly #yield: WebAssembly.ExportValue;
  #startMs = 0;

  /** The functions of the source are called on the guest's stack. */
  constructor({ ask, wait, resumed }: FuelSource) {
    const imports = { m: { a: ask, w: new WebAssembly.Suspending(wait), r: resumed } };
    this.#yield = new WebAssembly.Instance(WRAPPER, imports).exports.y as WebAssembly.ExportValue;
  }

  /** Function that a metered module calls when its fuel has run out. */
  get yield(): WebAssembly.ExportValue {
    return this.#yield;
  }

  /** Total time of the start functions, in ms. */
  get startMs(): number {
    return this.#startMs;
  }

  /** Connects a new core instance and runs its start function. Throws the errors of the start function. */
  adopt(exports: WebAssembly.Exports): void {
    const { pie_fuel: gauge, pie_yield: table, pie_start: start } = exports;
    if (gauge instanceof WebAssembly.Global && table instanceof WebAssembly.Table) {
      table.set(0, this.#yield);
      this.#gauges.push(gauge as unknown as Gauge);
      // Divides the fuel evenly among all modules, the new one included.
      this.drain();
      this.refill();
    }
    if (typeof start !== 'function') return;
    const from = performance.now();
    try {
      start();
    } finally {
      this.#startMs += performance.now() - from;
    }
  }

  /** Divides `FUEL`, without what other modules keep, among the modules that have none left. */
  refill(): void {
    const gauges = this.#gauges;
    const [only] = gauges;
    if (gauges.length === 1 && only) {
      only.value = FUEL;
      return;
    }
    const maxKept = Math.floor(FUEL / gauges.length) >> KEPT_SHIFT;
    const emptyGauges: Gauge[] = [];
    let remainingFuel = FUEL;
    for (const gauge of gauges) {
      if (gauge.value > 0) {
        gauge.value = Math.min(gauge.value, maxKept);
        remainingFuel -= gauge.value;
      } else emptyGauges.push(gauge);
    }
    for (const gauge of emptyGauges) gauge.value = Math.floor(remainingFuel / emptyGauges.length);
  }

  /** Takes all fuel, so that the next check calls `ask`. */
  drain(): void {
    for (const gauge of this.#gauges) gauge.value = 0;
  }
}
