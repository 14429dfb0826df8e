import type { Sandbox } from './sandbox.ts';

/** Time between two looks at the device. */
const LOOK_MS = 20;
/** A device counts as busy for this long after its last call, because no call is under way between two tokens of a guest. */
const BUSY_MS = 100;

/**
 * Tells sandboxes whether a device computes for this runtime. While it does, guests that only compute get a small share of their thread
 * (`runtime/lowering/slices.ts`). This leaves the cores to the device and to the guests that feed it.
 */
export class DevicePressure {
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #isDeviceBusy: () => boolean;
  readonly #toldBusy = new WeakMap<Sandbox, boolean>();
  #timer: NodeJS.Timeout | undefined;
  #busyAtMs = Number.NEGATIVE_INFINITY;

  constructor(sandboxes: () => Iterable<Sandbox>, busy: () => boolean) {
    this.#sandboxes = sandboxes;
    this.#isDeviceBusy = busy;
  }

  /** Starts to watch the device. Call it when a sandbox gets a run; the watch ends with the last run. */
  begin(): void {
    this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #look(): void {
    const now = performance.now();
    if (this.#isDeviceBusy()) this.#busyAtMs = now;
    const busy = now - this.#busyAtMs < BUSY_MS;
    let runs = 0;
    for (const sandbox of this.#sandboxes()) {
      runs += sandbox.runs;
      if (sandbox.runs === 0 || this.#toldBusy.get(sandbox) === busy) continue;
      this.#toldBusy.set(sandbox, busy);
      sandbox.process.tell({ kind: 'device', busy });
    }
    if (runs === 0) this.close();
  }
}
