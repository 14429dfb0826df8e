import { setImmediate as nextTurn } from 'node:timers/promises';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';
import { CallAccount, type CpuBudget } from '../workers/account.ts';

/** Bounds on unanswered calls and compilations, and on the bytes of their tokens and sources. */
const BOUNDS = { what: 'grammar calls', calls: 1024, bytes: 32 << 20 };
/** Maximum accepted tokens that the matchers of one user (an inferlet) remember together. */
const MAX_TOKENS = 1 << 20;
/** Memory that a remembered token takes. */
const TOKEN_BYTES = 8;

/** Bounds the memory that the grammars of one user hold in this process, and charges the user for their time. */
export class GrammarAccount extends CallAccount {
  #tokens = 0;
  /** Resolves in the latest turn of the event loop that a call of `turn` waits for. */
  #lastTurn: Promise<unknown> = Promise.resolve();

  constructor(cpu?: CpuBudget, tenantBytes?: InferletShare) {
    super(BOUNDS, cpu, tenantBytes);
  }

  /** Reserves room for accepted tokens until `give`; returns an error when there is no room. */
  keep(tokens: number): HandlerError | null {
    if (this.#tokens + tokens > MAX_TOKENS) {
      const text = `the matchers hold more than ${MAX_TOKENS} accepted tokens together; drop what is not needed`;
      return handlerError('limit-exceeded', text);
    }
    if (this.tenantBytes?.fits(tokens * TOKEN_BYTES) === false) return this.shareTaken();
    this.tenantBytes?.add(tokens * TOKEN_BYTES);
    this.#tokens += tokens;
    return null;
  }

  /** Gives back the room of accepted tokens. */
  give(tokens: number): void {
    this.tenantBytes?.add(-tokens * TOKEN_BYTES);
    this.#tokens -= tokens;
  }

  /** Waits for a turn of the event loop for work on this thread. Each call gets a turn of its own, so that other users are served in between. */
  async turn(): Promise<void> {
    this.#lastTurn = this.#lastTurn.then(() => nextTurn());
    await this.#lastTurn;
  }

  /** Does work on this thread and charges its time, because no clock of the guest measures it. Time until a returned promise settles is free. */
  runCharged<T>(work: () => T): T {
    const startMs = performance.now();
    const result = work();
    this.charge(performance.now() - startMs);
    return result;
  }
}
