import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';

/** The CPU time budget of a user of workers. */
export interface CpuBudget {
  /** Adds time that a worker spent for the user. */
  charge(cpuMs: number): void;
  /** True when the budget is used up. */
  usedUp(): boolean;
}

/** The budget of users whose time is not counted. */
export const ENDLESS: CpuBudget = { charge: () => undefined, usedUp: () => false };

/** Charges the workers' time to one user, an inferlet. */
export class Account {
  readonly #cpu: CpuBudget;

  constructor(cpu: CpuBudget = ENDLESS) {
    this.#cpu = cpu;
  }

  charge(cpuMs: number): void {
    this.#cpu.charge(cpuMs);
  }

  /** The error when workers may do no more for the user, or null. */
  refuse(): HandlerError | null {
    if (!this.#cpu.usedUp()) return null;
    return handlerError('limit-exceeded', 'the CPU time is used up (manifest: limits.cpuMs)');
  }
}

/** Bounds on the pending calls of one user. */
export interface CallBounds {
  /** Plural noun for error messages, such as `images`. */
  readonly what: string;
  readonly calls: number;
  readonly bytes: number;
}

/** An account that also bounds the memory of its pending calls. */
export class CallAccount extends Account {
  readonly #bounds: CallBounds;
  /** The inferlet's part of its tenant's share of memory; without it, only `#bounds` apply. */
  protected readonly tenantBytes: InferletShare | undefined;
  #calls = 0;
  #bytes = 0;

  constructor(bounds: CallBounds, cpu?: CpuBudget, tenantBytes?: InferletShare) {
    super(cpu);
    this.#bounds = bounds;
    this.tenantBytes = tenantBytes;
  }

  /** Starts a call that holds `bytes` until `end`; answers an error when there is no room. */
  begin(bytes: number): HandlerError | null {
    const refused = this.refuse();
    if (refused) return refused;
    const { what, ...limits } = this.#bounds;
    if (this.#calls >= limits.calls || this.#bytes + bytes > limits.bytes) {
      const text = `more than ${limits.calls} ${what}, or ${limits.bytes} bytes of them, are pending; await some first`;
      return handlerError('limit-exceeded', text);
    }
    if (this.tenantBytes?.fits(bytes) === false) return this.shareTaken();
    this.tenantBytes?.add(bytes);
    this.#calls += 1;
    this.#bytes += bytes;
    return null;
  }

  end(bytes: number): void {
    this.tenantBytes?.add(-bytes);
    this.#calls -= 1;
    this.#bytes -= bytes;
  }

  /** Gives back the inferlet's part of the tenant's share. Call this method when the user has ended. */
  close(): void {
    this.tenantBytes?.close();
  }

  protected shareTaken(): HandlerError {
    const text = `the ${this.#bounds.what} of the tenant's inferlets take their share of memory; await or drop some first`;
    return handlerError('limit-exceeded', text);
  }
}
