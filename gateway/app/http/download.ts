const PIECE_BYTES = 256 * 1024;
/** Time without a read by the client after which the stream fails. */
const STALLED_MS = 30_000;

/**
 * Streams bytes that are in memory, piece by piece as the client takes them.
 *
 * @param free called once, when the client has all bytes, is gone, or has taken nothing for 30 s
 */
export function download(content: Uint8Array, free: () => void): ReadableStream<Uint8Array> {
  let offset = 0;
  let stallTimer: ReturnType<typeof setTimeout> | undefined;
  let isFreed = false;
  const end = (): void => {
    clearTimeout(stallTimer);
    if (isFreed) return;
    isFreed = true;
    free();
  };
  const limitWait = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
    clearTimeout(stallTimer);
    stallTimer = setTimeout(() => {
      end();
      controller.error(new Error('the client took nothing for too long'));
    }, STALLED_MS);
  };
  return new ReadableStream(
    {
      // Limit the wait from the start: a server may drop a body without ever reading or cancelling it.
      start: limitWait,
      pull(controller) {
        if (offset >= content.length) {
          end();
          controller.close();
          return;
        }
        controller.enqueue(content.slice(offset, offset + PIECE_BYTES));
        offset += PIECE_BYTES;
        limitWait(controller);
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}
