import { type CheckedFunction, InputChecker as Checker } from '#scheduler/functions/input-check.ts';
import { GatewayError } from '../errors/gateway-error.ts';

/** Checks inputs against the JSON schema of a function's manifest. */
export class InputChecker {
  readonly #checker = new Checker();

  /** Throws `invalid-input` with the offending field as a JSON pointer. */
  check(fn: CheckedFunction, input: unknown): void {
    const fault = this.#checker.check(fn, input);
    if (fault === null) return;
    const { message, field, hint, cause } = fault;
    throw new GatewayError('invalid-input', message, { field, hint, cause });
  }
}
