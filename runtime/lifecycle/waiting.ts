import type { DeviceClient, Termination } from '#gpu-host/protocol/client.ts';
import type { StepTrace } from '../telemetry/step-trace.ts';
import { type CpuBudget, ENDLESS } from '../workers/account.ts';

/** The part of a GPU host's inferlet that the monitor uses. */
export type WaitingDevice = Pick<DeviceClient, 'pendingCalls' | 'issuedCalls' | 'setWaiting'>;

/** Counts one inferlet's waits for anything but a device. */
export interface Waits {
  /** Counts a wait for a message, a timer or a server until the promise settles; returns the same promise. */
  during<T>(wait: Promise<T>): Promise<T>;
  /** Adds a GPU host that holds memory of this inferlet. */
  addDevice(device: WaitingDevice): void;
}

/** Callbacks from an inferlet's host functions to its runner. */
export interface InferletHooks {
  readonly waits: Waits;
  /** The inferlet's CPU time, including other threads that work for it. */
  readonly cpu: CpuBudget;
  /** Records the inferlet's steps on models; absent when steps are not recorded. */
  readonly steps?: StepTrace;
  /** Usage so far that is counted outside the host functions. */
  usage(): { readonly cpuMs: number; readonly calls: number; readonly memoryBytes: number };
  /** Called when a GPU host has taken the inferlet's memory. */
  terminated(termination: Termination): void;
  /** Called with `true` when a GPU host begins to hold calls of the inferlet, and with `false` when it holds none any more. */
  held(isHeld: boolean): void;
  /** Called when a quota has no room for the tokens that the inferlet asked for. */
  quotaReached(): void;
  /** Called when the tokens left in a quota are no longer known: the runner asks the store. */
  quotaUnknown(): void;
}

/** Hooks for inferlets without a runner. */
export const NO_HOOKS: InferletHooks = {
  waits: { during: (wait) => wait, addDevice: () => undefined },
  cpu: ENDLESS,
  usage: () => ({ cpuMs: 0, calls: 0, memoryBytes: 0 }),
  terminated: () => undefined,
  held: () => undefined,
  quotaReached: () => undefined,
  quotaUnknown: () => undefined,
};

/** Interval between two looks. A wait is reported after one to two of them: most waits are shorter. */
const LOOK_MS = 20;

/** Calls `look` repeatedly until the returned function is called. */
export type Repeat = (look: () => void) => () => void;

/**
 * Tells GPU hosts which inferlets wait for a message, a timer or a server, so that their pages may be swapped out. An inferlet counts as
 * waiting when it has no pending call and has issued none since the last look. One timer looks at all waits, so a short wait costs only
 * a counter. The GPU host's client clears the state with its next call.
 */
export class WaitMonitor {
  readonly #repeat: Repeat;
  readonly #waiting = new Set<InferletWaits>();
  #stop: (() => void) | undefined;

  constructor(repeat: Repeat = everyLook) {
    this.#repeat = repeat;
  }

  /** Watches one inferlet. Calls `onWaitEnd` at the end of each wait of the inferlet. */
  watch(onWaitEnd: () => void = () => undefined): Waits {
    const onFirstWait = (waits: InferletWaits) => {
      this.#waiting.add(waits);
      this.#stop ??= this.#repeat(() => this.#look());
    };
    return new InferletWaits(onFirstWait, onWaitEnd);
  }

  #look(): void {
    for (const waits of this.#waiting) if (!waits.look()) this.#waiting.delete(waits);
    if (this.#waiting.size > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }
}

function everyLook(look: () => void): () => void {
  const timer = setInterval(look, LOOK_MS).unref();
  return () => clearInterval(timer);
}

/** The value of `#seenCalls` before the first look at a wait. */
const UNSEEN = -1;

class InferletWaits implements Waits {
  readonly #onFirstWait: (waits: InferletWaits) => void;
  readonly #onWaitEnd: () => void;
  readonly #devices: WaitingDevice[] = [];
  #openWaits = 0;
  /** Calls issued up to the last look. */
  #seenCalls = UNSEEN;

  constructor(onFirstWait: (waits: InferletWaits) => void, onWaitEnd: () => void) {
    this.#onFirstWait = onFirstWait;
    this.#onWaitEnd = onWaitEnd;
  }

  during<T>(wait: Promise<T>): Promise<T> {
    if (this.#openWaits++ === 0) {
      this.#seenCalls = UNSEEN;
      this.#onFirstWait(this);
    }
    wait.then(this.#endWait, this.#endWait);
    return wait;
  }

  addDevice(device: WaitingDevice): void {
    this.#devices.push(device);
  }

  /** Tells the GPU hosts that the inferlet waits if no call is pending and none was issued since the last look. False when no wait is open. */
  look(): boolean {
    if (this.#openWaits === 0) return false;
    let pending = 0;
    let issued = 0;
    for (const device of this.#devices) {
      pending += device.pendingCalls;
      issued += device.issuedCalls;
    }
    const isWaiting = pending === 0 && issued === this.#seenCalls;
    this.#seenCalls = issued;
    if (isWaiting) for (const device of this.#devices) device.setWaiting(true);
    return true;
  }

  #endWait = (): void => {
    this.#openWaits--;
    this.#onWaitEnd();
    for (const device of this.#devices) device.setWaiting(false);
  };
}
