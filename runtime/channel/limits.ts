/** Bytes of a frame's header: payload length, invocation, kind and flags. */
export const HEADER_BYTES = 12;

/**
 * Credit that a frame needs besides the bytes of its payload. It covers the frame's header and a part of the memory that a waiting message takes.
 * If it covered the header alone, a paused invocation could hold 40,000 empty messages, which take 16 MB.
 */
export const FRAME_COST = 128;

/** Maximum bytes of one frame's payload. Longer messages are cut, so that they do not delay other invocations. */
export const MAX_PAYLOAD_BYTES = 64 * 1024;

/** Maximum bytes of one message: a file or result of 16 MiB, with room for the values around it. */
export const MAX_MESSAGE_BYTES = 32 * 2 ** 20;

/** Bytes, including `FRAME_COST` for each frame, that one invocation may have in flight in one direction. */
export const WINDOW_BYTES = 512 * 1024;

/** Total bytes of partial messages that one end assembles at a time, over all invocations. */
export const MAX_ASSEMBLY_BYTES = 64 * 2 ** 20;

/** Bytes of one invocation that may wait to be sent, besides the `ended` message. */
export const MAX_QUEUED_BYTES = 64 * 2 ** 20;

/** Bytes of all invocations that may wait to be sent. It bounds the memory that is held for a peer that reads nothing. */
export const MAX_CHANNEL_QUEUED_BYTES = 512 * 2 ** 20;

/** Lists, elements and texts that one message of the runtime may hold. */
export const MAX_ITEMS = 1 << 20;

/** The same for a message of a sandbox: a guest's call may pass 16,384 list elements, and each element may contain up to four values. */
export const MAX_SANDBOX_ITEMS = 5 * 16_384;

/**
 * Maximum handles, and maximum futures, that one invocation may hold in the runtime. It is the guest's bound plus one, because the call that
 * exceeds the guest's bound reaches the runtime before the guest traps.
 */
export const MAX_NUMBERS = 16_385;

/** A write takes no further frames once it has this many bytes, so that other events of the process get their turn. */
export const BATCH_BYTES = 256 * 1024;

/** Bytes of modules, programs and tables that may wait for a sandbox. */
export const MAX_CONTROL_QUEUED_BYTES = 256 * 2 ** 20;

/** Bytes of signals that may wait for a peer that reads nothing. */
export const MAX_URGENT_BYTES = 4 * 2 ** 20;

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
