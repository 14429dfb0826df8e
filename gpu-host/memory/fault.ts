import { type HandlerError, type HandlerErrorTag, handlerError } from '../protocol/errors.ts';

/**
 * Thrown to refuse a call. The inferlet receives `error` as the call's error. A refused call has changed nothing, with one exception: a `free` that
 * names unknown addresses has freed the others.
 */
export class CallFault extends Error {
  override readonly name = 'CallFault';
  readonly error: HandlerError;
  constructor(error: HandlerError) {
    // Capture no stack trace. A guest can cause thousands of faults, and a trace costs more than the call. The host's stack does not help the guest.
    const usualLimit = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
    super(error.val);
    Error.stackTraceLimit = usualLimit;
    this.error = error;
  }
}

export function fault(tag: HandlerErrorTag, message: string): CallFault {
  return new CallFault(handlerError(tag, message));
}

/**
 * The fault of a call that depends on an earlier call that failed.
 * @param cause the error of the earlier call
 */
export function dependencyFault(cause: HandlerError): CallFault {
  // The earlier call itself failed because of a dependency. Its error already names the first cause.
  if (cause.tag === 'dependency-failed') return new CallFault(cause);
  return fault(
    'dependency-failed',
    `an earlier call that this one depends on failed (${cause.tag}: ${cause.val}); synchronize reports it and goes on`,
  );
}

/**
 * Thrown when a call must wait. The call is not refused, and has changed nothing. Either the call's inferlet is preempted, or pages of the inferlet
 * are being read from disk. The host makes the call again when the inferlet returns or the pages have arrived.
 */
export class CallHeld extends Error {
  override readonly name = 'CallHeld';
}
