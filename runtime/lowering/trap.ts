/** Why an inferlet was stopped by the runtime, other than by its own code. */
export type TrapCode =
  | 'trap'
  | 'cpu-limit'
  | 'memory-limit'
  | 'output-limit'
  | 'cancelled'
  | 'deadline-exceeded'
  | 'terminated';

/** Thrown into (or at) one inferlet; it ends that inferlet only. */
export class GuestTrap extends Error {
  override readonly name = 'GuestTrap';
  readonly code: TrapCode;
  constructor(code: TrapCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
