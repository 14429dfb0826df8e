import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import { CallAccount, type CpuBudget } from '../workers/account.ts';

/** Calls and compilations that are not answered yet, lists and sources of these. */
const BOUNDS = { what: 'grammar calls', calls: 1024, bytes: 32 << 20 };
/** Accepted tokens that the matchers remember together; some 8 bytes each. */
const MAX_TOKENS = 1 << 20;

/** What the grammars of one user (an inferlet) hold of this process and take of the workers' time, within bounds. */
export class GrammarAccount extends CallAccount {
  #tokens = 0;

  constructor(cpu?: CpuBudget) {
    super(BOUNDS, cpu);
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
}
