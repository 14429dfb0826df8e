/** Why a channel ended. */
export type ChannelFaultCode =
  /** The stream ended or failed: the peer is gone. */
  | 'lost'
  /** This side closed the channel. */
  | 'closed'
  /** The peer was made from another contract. */
  | 'version'
  /** A frame with a header that no peer writes. */
  | 'bad-frame'
  /** A value that does not fit its type: bounds, case, UTF-8, count. */
  | 'bad-value'
  /** A message or a value past a documented size. */
  | 'too-large'
  /** More bytes, calls or handles than the peer was given credit for. */
  | 'too-much-in-flight'
  /** An invocation that is not open. */
  | 'unknown-invocation'
  /** A function that is not called over the channel. */
  | 'unknown-function'
  /** A handle or future that this invocation does not hold, or that it holds already. */
  | 'bad-number'
  /** An answer to a call that does not wait for one. */
  | 'unasked-answer';

/** Ends one channel. The cause is kept for the log. */
export class ChannelFault extends Error {
  override readonly name = 'ChannelFault';
  readonly code: ChannelFaultCode;

  constructor(code: ChannelFaultCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** Makes a fault of anything that was caught while a frame was read. */
  static from(error: unknown): ChannelFault {
    if (error instanceof ChannelFault) return error;
    const message = error instanceof Error ? error.message : String(error);
    return new ChannelFault('bad-frame', `the frame could not be taken: ${message}`, { cause: error });
  }
}
