import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';

/** The CPU time of whoever uses grammars. */
export interface CpuBudget {
  /** Adds time that a worker spent for it. */
  charge(cpuMs: number): void;
  /** Whether nothing is left. */
  usedUp(): boolean;
}

/** For users whose time nobody counts. */
export const ENDLESS: CpuBudget = { charge: () => undefined, usedUp: () => false };

/** Calls and compilations that are not answered yet. */
const MAX_CALLS = 1024;
/** Lists and sources of these. */
const MAX_CALL_BYTES = 32 << 20;
/** Accepted tokens that the matchers remember together; some 8 bytes each. */
const MAX_TOKENS = 1 << 20;

/** What the grammars of one user (an inferlet) hold of this process and take of the workers' time, within bounds. */
export class GrammarAccount {
  readonly #cpu: CpuBudget;
  #calls = 0;
  #callBytes = 0;
  #tokens = 0;

  constructor(cpu: CpuBudget = ENDLESS) {
    this.#cpu = cpu;
  }

  /** Begins a call that holds `bytes` until `end`; or why it must not. */
  begin(bytes: number): HandlerError | null {
    const refused = this.refuse();
    if (refused) return refused;
    if (this.#calls >= MAX_CALLS || this.#callBytes + bytes > MAX_CALL_BYTES) {
      const text = `more than ${MAX_CALLS} grammar calls, or ${MAX_CALL_BYTES} bytes of them, are pending; await some first`;
      return handlerError('limit-exceeded', text);
    }
    this.#calls += 1;
    this.#callBytes += bytes;
    return null;
  }

  end(bytes: number): void {
    this.#calls -= 1;
    this.#callBytes -= bytes;
  }

  /** Makes room for accepted tokens until `give`; or why there is none. */
  keep(tokens: number): HandlerError | null {
    if (this.#tokens + tokens > MAX_TOKENS) {
      const text = `the matchers hold more than ${MAX_TOKENS} accepted tokens together; drop what is not needed`;
      return handlerError('limit-exceeded', text);
    }
    this.#tokens += tokens;
    return null;
  }

  give(tokens: number): void {
    this.#tokens -= tokens;
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
