import { type HandlerError, type HandlerErrorTag, handlerError } from '../protocol/errors.ts';

/** Thrown by a handler that refuses its call, before it changed anything. The inferlet receives `error` as the error of that call. */
export class CallFault extends Error {
  override readonly name = 'CallFault';
  readonly error: HandlerError;
  constructor(error: HandlerError) {
    // A guest can cause thousands of these. The host's stack does not help the guest, and a trace costs more than the call.
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

/** The error of a call that needs the result of an earlier, failed call. */
export function dependencyFault(cause: HandlerError): CallFault {
  if (cause.tag === 'dependency-failed') return new CallFault(cause);
  return fault(
    'dependency-failed',
    `an earlier call that this one depends on failed (${cause.tag}: ${cause.val}); synchronize reports it and goes on`,
  );
}

/**
 * The outcome of a call that must wait: it is not refused, and has changed nothing. Its inferlet is preempted, or pages of it come from disk.
 * The call is made again when the inferlet returns, or the pages have come.
 */
export class CallHeld extends Error {
  override readonly name = 'CallHeld';
}
