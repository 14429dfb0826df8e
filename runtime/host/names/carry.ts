import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Side } from './other-hosts.ts';

/** Longest wait for one answer of a GPU host. */
const ANSWER_MS = 30_000;
/** Longest transfer. It occupies a turn for which other transfers wait. */
const TRANSFER_MS = 120_000;

/** The error for an answer that did not come in time. */
export const LATE = handlerError(
  'unavailable',
  `the other GPU host did not answer within ${ANSWER_MS / 1000} s; try again`,
);
const SLOW = handlerError(
  'unavailable',
  `the transfer from another GPU host took more than ${TRANSFER_MS / 1000} s; try again`,
);
const NO_PIECE = handlerError('internal', 'the GPU host sent fewer bytes than it announced');

/** The answer of a GPU host, or an error when it takes too long. */
export async function answerInTime<T>(pending: Promise<Outcome<T>>): Promise<Outcome<T>> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<Outcome<T>>((resolve) => {
    timer = setTimeout(() => resolve(err(LATE)), ANSWER_MS);
  });
  try {
    return await Promise.race([pending, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Carries the content of pages to another GPU host, which keeps a copy. Reads one piece while it writes the one before. A transfer that fails
 * leaves nothing at either host.
 *
 * @param version text that names the copy at the other host
 * @param stopReason returns an error once the transfer must stop; called before each piece
 */
export async function carry(
  from: Side,
  pages: Uint32Array,
  to: Side,
  version: string,
  stopReason: () => HandlerError | null,
): Promise<Outcome<undefined>> {
  const begun = await answerInTime(from.device.ask(from.queue, { op: 'send-begin', pages }));
  if (begun.tag === 'err') return begun;
  const { sending, bytes, pages: count, fingerprint, pageSize, pageBytes } = begun.val;
  let isSent = false;
  let copy: number | undefined;
  try {
    const beginCall = { op: 'copy-begin', version, pages: count, fingerprint, pageSize, pageBytes } as const;
    const begunCopy = await answerInTime(to.device.ask(to.queue, beginCall));
    if (begunCopy.tag === 'err') return begunCopy;
    copy = begunCopy.val;
    const failure = await movePieces({ next: nextFrom(from, sending), take: takeAt(to, copy), bytes }, stopReason);
    if (failure) return err(failure);
    isSent = true;
    const checksum = await answerInTime(from.device.ask(from.queue, { op: 'send-end', sending }));
    if (checksum.tag === 'err') return checksum;
    const keptCopy = await answerInTime(to.device.ask(to.queue, { op: 'copy-end', copy, checksum: checksum.val }));
    if (keptCopy.tag === 'ok') copy = undefined;
    return keptCopy;
  } finally {
    // Ends the sending after a failure. Its checksum is not needed.
    if (!isSent) void from.device.ask(from.queue, { op: 'send-end', sending });
    if (copy !== undefined) to.device.send(to.queue, { op: 'copy-drop', copy });
  }
}

/** The two ends of a transfer, and the bytes that go from one to the other. */
export interface Pieces {
  readonly next: () => Promise<Outcome<Uint8Array>>;
  readonly take: (piece: Uint8Array) => Promise<Outcome<undefined>>;
  readonly bytes: number;
}

/** Moves all pieces, and reads one piece while the one before is written. @returns the error that ended the transfer early, or null */
export async function movePieces(
  { next, take, bytes }: Pieces,
  stopReason: () => HandlerError | null,
): Promise<HandlerError | null> {
  const endsMs = performance.now() + TRANSFER_MS;
  let writing: Promise<Outcome<undefined>> | undefined;
  for (let remainingBytes = bytes; remainingBytes > 0; ) {
    const stopError = stopReason() ?? (performance.now() > endsMs ? SLOW : null);
    if (stopError) return stopError;
    const piece = await next();
    const earlierWrite = writing && (await writing);
    if (earlierWrite?.tag === 'err') return earlierWrite.val;
    if (piece.tag === 'err') return piece.val;
    if (piece.val.length === 0 || piece.val.length > remainingBytes) return NO_PIECE;
    writing = take(piece.val);
    remainingBytes -= piece.val.length;
  }
  const lastWrite = writing && (await writing);
  return lastWrite?.tag === 'err' ? lastWrite.val : null;
}

/** Asks for the next piece of a sending. */
export const nextFrom =
  ({ device, queue }: Side, sending: number) =>
  (): Promise<Outcome<Uint8Array>> =>
    answerInTime(device.ask(queue, { op: 'send-piece', sending }));

/** Adds a piece to a copy. */
export const takeAt =
  ({ device, queue }: Side, copy: number) =>
  (bytes: Uint8Array): Promise<Outcome<undefined>> =>
    answerInTime(device.ask(queue, { op: 'copy-piece', copy, bytes }));
