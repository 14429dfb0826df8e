/** Reason for the end of a channel. */
export type ChannelFaultCode =
  /** The stream ended or failed: the peer is gone. */
  | 'lost'
  /** This side closed the channel. */
  | 'closed'
  /** The peer was built from another contract. */
  | 'version'
  /** A frame, message or signal that a correct peer does not send at this point: wrong header, kind, length or order. */
  | 'bad-frame'
  /** A value does not fit its type: bounds, case, UTF-8, count. */
  | 'bad-value'
  /** A message or a value exceeds a documented size. */
  | 'too-large'
  /** The peer sent more bytes, calls or handles than its credit allows. */
  | 'too-much-in-flight'
  /** The peer named an invocation that is not open. */
  | 'unknown-invocation'
  /** The peer called a function that is not available over the channel. */
  | 'unknown-function'
  /** The peer used a number of a handle or future that the invocation does not hold, or used a taken number for a new one. */
  | 'bad-number'
  /** The peer answered a call that does not wait for an answer. */
  | 'unasked-answer'
  /** This side failed while it handled a frame. */
  | 'internal';

/** Ends one channel. The log shows the cause. */
export class ChannelFault extends Error {
  override readonly name = 'ChannelFault';
  readonly code: ChannelFaultCode;

  constructor(code: ChannelFaultCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** Converts an error that was caught while a frame was handled. */
  static from(error: unknown): ChannelFault {
    if (error instanceof ChannelFault) return error;
    const message = error instanceof Error ? error.message : String(error);
    return new ChannelFault('internal', `a frame could not be handled: ${message}`, { cause: error });
  }
}
