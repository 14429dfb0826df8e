import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';

/** The CPU time of whoever uses workers. */
export interface CpuBudget {
  /** Adds time that a worker spent for it. */
  charge(cpuMs: number): void;
  /** Whether nothing is left. */
  usedUp(): boolean;
}

/** For users whose time nobody counts. */
export const ENDLESS: CpuBudget = { charge: () => undefined, usedUp: () => false };

/** What the workers' time that one user (an inferlet) takes is counted on. */
export class Account {
  readonly #cpu: CpuBudget;

  constructor(cpu: CpuBudget = ENDLESS) {
    this.#cpu = cpu;
  }

  charge(cpuMs: number): void {
    this.#cpu.charge(cpuMs);
  }

  /** Why no worker may do more for it, or null. */
  refuse(): HandlerError | null {
    if (!this.#cpu.usedUp()) return null;
    return handlerError('limit-exceeded', 'the CPU time is used up (manifest: limits.cpuMs)');
  }
}

/** What one user may have pending. */
export interface CallBounds {
  /** In errors, such as `pictures`. */
  readonly what: string;
  readonly calls: number;
  readonly bytes: number;
}

/** An account that also bounds what its calls hold of this process until they are answered. */
export class CallAccount extends Account {
  readonly #bounds: CallBounds;
  #calls = 0;
  #bytes = 0;

  constructor(bounds: CallBounds, cpu?: CpuBudget) {
    super(cpu);
    this.#bounds = bounds;
  }

  /** Begins a call that holds `bytes` until `end`; or why it must not. */
  begin(bytes: number): HandlerError | null {
    const refused = this.refuse();
    if (refused) return refused;
    const { what, ...most } = this.#bounds;
    if (this.#calls >= most.calls || this.#bytes + bytes > most.bytes) {
      const text = `more than ${most.calls} ${what}, or ${most.bytes} bytes of them, are pending; await some first`;
      return handlerError('limit-exceeded', text);
    }
    this.#calls += 1;
    this.#bytes += bytes;
    return null;
  }

  end(bytes: number): void {
    this.#calls -= 1;
    this.#bytes -= bytes;
  }
}
