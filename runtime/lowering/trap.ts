import type { Figures } from '#scheduler/invocations/endings.ts';

/** Reason for which the runtime, and not the inferlet's own code, stopped an inferlet. */
export type TrapCode =
  | 'trap'
  | 'cpu-limit'
  | 'memory-limit'
  | 'output-limit'
  | 'cancelled'
  | 'deadline-exceeded'
  | 'terminated';

/** V8's stack is full. Nothing in the guest can catch this end: the engine of JavaScript guests, which runs on that stack, ends with it. */
const TOO_DEEP =
  'the call stack is exhausted by a recursion that is too deep, or endless; replace it by a loop over a list of open work, and nest data (also for JSON) less deeply';
/** V8's message. */
const OUT_OF_BOUNDS = 'memory access out of bounds';
/** A compiled guest keeps local data in a stack at the beginning of its memory. */
const LEFT_THE_STACK = 'a wrong address, or a recursion so deep that its stack left the memory';

/** An error that ends one inferlet and no other. */
export class GuestTrap extends Error {
  override readonly name = 'GuestTrap';
  readonly code: TrapCode;
  /** The figures that decided, for the log; empty for most traps. */
  readonly figures: Figures;
  constructor(code: TrapCode, message: string, options: ErrorOptions & { readonly figures?: Figures } = {}) {
    super(message, options);
    this.code = code;
    this.figures = options.figures ?? {};
  }

  /** Converts an error of a guest's code into the trap that ends the guest. */
  static from(error: unknown): GuestTrap {
    if (error instanceof GuestTrap) return error;
    if (error instanceof RangeError && /call stack/i.test(error.message)) {
      return new GuestTrap('trap', TOO_DEEP, { cause: error });
    }
    if (error instanceof WebAssembly.RuntimeError && error.message === OUT_OF_BOUNDS)
      return new GuestTrap('trap', `${OUT_OF_BOUNDS}: ${LEFT_THE_STACK}`, { cause: error });
    return new GuestTrap('trap', error instanceof Error ? error.message : String(error), { cause: error });
  }
}
