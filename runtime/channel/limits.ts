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
