import { type HandlerError, type HandlerErrorTag, handlerError } from '../protocol/errors.ts';

/** Thrown by a handler that refuses its call; it reaches the inferlet as the error of that call. Nothing was changed when it is thrown. */
export class CallFault extends Error {
  override readonly name = 'CallFault';
  readonly error: HandlerError;
  constructor(error: HandlerError) {
    // A guest can cause these by the thousand; where in the host they were found interests nobody, and a trace costs more than the call.
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
    super(error.val);
    Error.stackTraceLimit = limit;
    this.error = error;
  }
}

export function fault(tag: HandlerErrorTag, message: string): CallFault {
  return new CallFault(handlerError(tag, message));
}

/** What an earlier failure means for a call that needs what it should have made. */
export function dependencyFault(cause: HandlerError): CallFault {
  if (cause.tag === 'dependency-failed') return new CallFault(cause);
  return fault(
    'dependency-failed',
    `an earlier call that this one depends on failed (${cause.tag}: ${cause.val}); synchronize reports it and goes on`,
  );
}
