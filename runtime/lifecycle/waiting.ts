import type { GpuInferlet, Termination } from '#gpu-host/protocol/client.ts';
import type { StepTrace } from '../telemetry/step-trace.ts';
import { type CpuBudget, ENDLESS } from '../workers/account.ts';

/** What a GPU host's side of an inferlet is asked and told here. */
export type WaitingDevice = Pick<GpuInferlet, 'pendingCalls' | 'issuedCalls' | 'setWaiting'>;

/** Where one inferlet's waits for anything but a device are counted. */
export interface Waits {
  /** Counts a wait for a message, a timer or a server until it settles; returns it as it is. */
  during<T>(wait: Promise<T>): Promise<T>;
  /** A GPU host that holds memory of this inferlet. */
  addDevice(device: WaitingDevice): void;
}

/** How an inferlet's host functions tell its runner what happens. */
export interface InferletHooks {
  readonly waits: Waits;
  /** Its CPU time, also that of other threads that work for it. */
  readonly cpu: CpuBudget;
  /** Where its steps on models are told; absent when nobody records them. */
  readonly steps?: StepTrace;
  /** What it has used so far, of what is counted outside its host functions. */
  usage(): { readonly cpuMs: number; readonly calls: number; readonly memoryBytes: number };
  /** A GPU host has taken the inferlet's memory. */
  terminated(termination: Termination): void;
  /** A quota has no room for the tokens that it asked for. */
  quotaReached(): void;
  /** What a quota leaves of tokens is not known any more: it is to be asked. */
  quotaUnknown(): void;
}

/** For inferlets that nobody watches. */
export const NO_HOOKS: InferletHooks = {
  waits: { during: (wait) => wait, addDevice: () => undefined },
  cpu: ENDLESS,
  usage: () => ({ cpuMs: 0, calls: 0, memoryBytes: 0 }),
  terminated: () => undefined,
  quotaReached: () => undefined,
  quotaUnknown: () => undefined,
};

/** Time between two looks; an inferlet is told of after one to two of them, since most waits are over sooner. */
const LOOK_MS = 20;

/** Calls `look` again and again until the returned function is called. */
export type Repeat = (look: () => void) => () => void;

/**
 * Tells GPU hosts which inferlets wait for something else, so that their pages may be swapped out: for a message, a timer or a server, with
 * no call pending and none issued since the look before. One timer looks at all that wait, so a wait costs a counter and a short one nothing
 * more. The client takes it back by itself with the next call.
 */
export class WaitMonitor {
  readonly #repeat: Repeat;
  readonly #waiting = new Set<InferletWaits>();
  #stop: (() => void) | undefined;

  constructor(repeat: Repeat = everyLook) {
    this.#repeat = repeat;
  }

  /** Watches one inferlet. `over` is called at the end of each of its waits. */
  watch(over: () => void = () => undefined): Waits {
    const began = (waits: InferletWaits) => {
      this.#waiting.add(waits);
      this.#stop ??= this.#repeat(() => this.#look());
    };
    return new InferletWaits(began, over);
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

/** No look has been had since the wait began. */
const UNSEEN = -1;

class InferletWaits implements Waits {
  readonly #began: (waits: InferletWaits) => void;
  readonly #over: () => void;
  readonly #devices: WaitingDevice[] = [];
  #open = 0;
  /** Calls issued up to the last look. */
  #seenCalls = UNSEEN;

  constructor(began: (waits: InferletWaits) => void, over: () => void) {
    this.#began = began;
    this.#over = over;
  }

  during<T>(wait: Promise<T>): Promise<T> {
    if (this.#open++ === 0) {
      this.#seenCalls = UNSEEN;
      this.#began(this);
    }
    wait.then(this.#ended, this.#ended);
    return wait;
  }

  addDevice(device: WaitingDevice): void {
    this.#devices.push(device);
  }

  /** Tells the GPU hosts when nothing has moved since the last look; false when there is no wait to look at. */
  look(): boolean {
    if (this.#open === 0) return false;
    let pending = 0;
    let issued = 0;
    for (const device of this.#devices) {
      pending += device.pendingCalls;
      issued += device.issuedCalls;
    }
    const still = pending === 0 && issued === this.#seenCalls;
    this.#seenCalls = issued;
    if (still) for (const device of this.#devices) device.setWaiting(true);
    return true;
  }

  #ended = (): void => {
    this.#open--;
    this.#over();
    for (const device of this.#devices) device.setWaiting(false);
  };
}
