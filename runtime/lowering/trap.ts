import type { Figures } from '#scheduler/invocations/platform-end.ts';

/** Reason for which the runtime, and not the inferlet's own code, stopped an inferlet. */
export type TrapCode =
  | 'trap'
  | 'cpu-limit'
  | 'memory-limit'
  | 'output-limit'
  | 'cancelled'
  | 'deadline-exceeded'
  | 'terminated';

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
      return new GuestTrap('trap', 'the call stack is exhausted: endless recursion?', { cause: error });
    }
    return new GuestTrap('trap', error instanceof Error ? error.message : String(error), { cause: error });
  }
}
