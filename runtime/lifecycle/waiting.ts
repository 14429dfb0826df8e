import type { DeviceClient, Termination } from '#gpu-host/protocol/client.ts';
import type { StepTrace } from '../telemetry/step-trace.ts';
import { type CpuBudget, ENDLESS } from '../workers/account.ts';

/** The part of an inferlet's client of a GPU host that the monitor uses. */
export type WaitingDevice = Pick<DeviceClient, 'pendingCalls' | 'issuedCalls' | 'setWaiting'>;

/** Counts one inferlet's open waits for a message, a timer or a server. */
export interface Waits {
  /** Counts a wait until its promise settles; returns the same promise. */
  during<T>(wait: Promise<T>): Promise<T>;
  /** Adds a GPU host that holds memory of this inferlet. */
  addDevice(device: WaitingDevice): void;
}

/** The runner's services and data for the host functions of one inferlet. */
export interface InferletHooks {
  readonly waits: Waits;
  /** The inferlet's CPU time, including other threads that work for it. */
  readonly cpu: CpuBudget;
  /** Records the inferlet's steps on models; absent when steps are not recorded. */
  readonly steps?: StepTrace;
  /** The inferlet's usage so far, as its `GuestRun` counts it. */
  usage(): { readonly cpuMs: number; readonly calls: number; readonly memoryBytes: number };
  /** Called when a GPU host has taken the inferlet's memory. */
  terminated(termination: Termination): void;
  /** Called with `true` when a GPU host begins to hold calls of the inferlet, and with `false` when that host holds none any more. */
  held(isHeld: boolean): void;
  /** Called when a quota has no room for the rest of a run, which other calls have overtaken on its queue. */
  quotaReached(): void;
  /** Called when the inferlet needs or wants more tokens of its tenant's quotas, see `Tokens`: the runner asks the store. */
  askForTokens(): void;
}

/** Hooks for inferlets without a runner. */
export const NO_HOOKS: InferletHooks = {
  waits: { during: (wait) => wait, addDevice: () => undefined },
  cpu: ENDLESS,
  usage: () => ({ cpuMs: 0, calls: 0, memoryBytes: 0 }),
  terminated: () => undefined,
  held: () => undefined,
  quotaReached: () => undefined,
  askForTokens: () => undefined,
};

/** Interval between two checks. The second check during a wait reports it, after one to two intervals: most waits are shorter. */
const CHECK_MS = 20;

/** Calls `check` repeatedly until the returned function is called. */
export type Repeat = (check: () => void) => () => void;

/**
 * Tells GPU hosts which inferlets wait for a message, a timer or a server, so that the hosts may swap out the inferlets' pages. An inferlet counts
 * as waiting when it has an open wait, has no pending call on a GPU host, and has issued no such call since the last check. This ends when any of
 * its waits ends, and with its next call, which `DeviceClient` notices. One timer checks all inferlets, so a short wait costs only a counter.
 */
export class WaitMonitor {
  readonly #repeat: Repeat;
  /** The inferlets with open waits, and those whose last wait ended since the last check. */
  readonly #waiting = new Set<InferletWaits>();
  #stop: (() => void) | undefined;

  constructor(repeat: Repeat = everyInterval) {
    this.#repeat = repeat;
  }

  /** Watches one inferlet. Calls `onWaitEnd` at the end of each wait of the inferlet. */
  watch(onWaitEnd: () => void = () => undefined): Waits {
    const onWaiting = (waits: InferletWaits) => {
      this.#waiting.add(waits);
      this.#stop ??= this.#repeat(() => this.#check());
    };
    return new InferletWaits(onWaiting, onWaitEnd);
  }

  #check(): void {
    for (const waits of this.#waiting) if (!waits.check()) this.#waiting.delete(waits);
    if (this.#waiting.size > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }
}

function everyInterval(check: () => void): () => void {
  const timer = setInterval(check, CHECK_MS).unref();
  return () => clearInterval(timer);
}

/** The value of `#seenCalls` before the first check: it equals no number of calls, so the first check reports no wait. */
const UNSEEN = -1;

class InferletWaits implements Waits {
  readonly #onWaiting: (waits: InferletWaits) => void;
  readonly #onWaitEnd: () => void;
  readonly #devices: WaitingDevice[] = [];
  #openWaits = 0;
  /** Number of calls issued up to the last check. */
  #seenCalls = UNSEEN;

  /** @param onWaiting called when a wait opens while no other is open */
  constructor(onWaiting: (waits: InferletWaits) => void, onWaitEnd: () => void) {
    this.#onWaiting = onWaiting;
    this.#onWaitEnd = onWaitEnd;
  }

  during<T>(wait: Promise<T>): Promise<T> {
    if (this.#openWaits++ === 0) {
      this.#seenCalls = UNSEEN;
      this.#onWaiting(this);
    }
    wait.then(this.#endWait, this.#endWait);
    return wait;
  }

  addDevice(device: WaitingDevice): void {
    this.#devices.push(device);
  }

  /** Tells the GPU hosts if the inferlet counts as waiting (see `WaitMonitor`). Returns false when no wait is open. */
  check(): boolean {
    if (this.#openWaits === 0) return false;
    let pendingCalls = 0;
    let issuedCalls = 0;
    for (const device of this.#devices) {
      pendingCalls += device.pendingCalls;
      issuedCalls += device.issuedCalls;
    }
    const isWaiting = pendingCalls === 0 && issuedCalls === this.#seenCalls;
    this.#seenCalls = issuedCalls;
    if (isWaiting) for (const device of this.#devices) device.setWaiting(true);
    return true;
  }

  #endWait = (): void => {
    this.#openWaits--;
    this.#onWaitEnd();
    for (const device of this.#devices) device.setWaiting(false);
  };
}
