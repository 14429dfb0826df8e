/** Bytes of a frame's header: payload length, invocation, kind and flags. */
export const HEADER_BYTES = 12;

/** Most bytes of one frame's payload. A longer message is cut, so that it does not hold up those of other invocations. */
export const MAX_PAYLOAD_BYTES = 64 * 1024;

/** Most bytes of one message: a file of 16 MiB, or a result of as many, and room for the values around it. */
export const MAX_MESSAGE_BYTES = 32 * 2 ** 20;

/** Bytes, headers included, that one invocation may have on their way in one direction. */
export const WINDOW_BYTES = 512 * 1024;

/** Bytes of messages in parts that one end puts together at once, over all invocations. */
export const MAX_ASSEMBLY_BYTES = 64 * 2 ** 20;

/** Bytes of one invocation that may wait here to be sent. The runtime's own accounts bound what is unread to as many. */
export const MAX_QUEUED_BYTES = 64 * 2 ** 20;

/** Bytes of all invocations that may wait here to be sent: a peer that takes nothing fills no more than this. */
export const MAX_CHANNEL_QUEUED_BYTES = 512 * 2 ** 20;

/** Elements of lists, texts and options that one message may hold. */
export const MAX_ITEMS = 1 << 20;

/** Handles, and futures, that one invocation may hold in the runtime: as many as a guest may hold in all, and the one that it traps for. */
export const MAX_NUMBERS = 16_385;

/** Bytes that leave in one write, before other events of the process have their turn. */
export const BATCH_BYTES = 256 * 1024;

/** Bytes of modules, programs and tables that may wait for a sandbox. */
export const MAX_CONTROL_QUEUED_BYTES = 256 * 2 ** 20;

/** Bytes of signals that may wait for a peer that takes nothing. */
export const MAX_URGENT_BYTES = 4 * 2 ** 20;
