import type { SentPages } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { PIECE_BYTES } from '#gpu-host/protocol/wire.ts';
import type { DurableCopy } from '#scheduler/exports/exports.ts';
import { answerInTime, movePieces, nextFrom, takeAt } from './carry.ts';
import type { Side } from './other-hosts.ts';
import type { CopyReader, CopyWriter } from './shared-directory.ts';

/** Description of the pages that a GPU host has sent, for the entry of a durable copy in Redis. */
export type Sent = Omit<SentPages, 'sending'> & { readonly checksum: string };

/**
 * Writes the content of a GPU host's pages to a file, in the form in which `carry` brings pages to a host.
 * @param refusal returns an error when the file may not have this many bytes; called before the first piece is written
 * @param stopReason returns an error once the transfer must stop; called before each piece
 */
export async function carryOut(
  from: Side,
  pages: Uint32Array,
  to: CopyWriter,
  refusal: (bytes: number) => HandlerError | null,
  stopReason: () => HandlerError | null,
): Promise<Outcome<Sent>> {
  const begun = await answerInTime(from.device.ask(from.queue, { op: 'send-begin', pages }));
  if (begun.tag === 'err') return begun;
  const { sending, ...sent } = begun.val;
  let isSent = false;
  try {
    const take = (piece: Uint8Array) => to.write(piece);
    const failure =
      refusal(sent.bytes) ?? (await movePieces({ next: nextFrom(from, sending), take, bytes: sent.bytes }, stopReason));
    if (failure) return err(failure);
    isSent = true;
    const checksum = await answerInTime(from.device.ask(from.queue, { op: 'send-end', sending }));
    return checksum.tag === 'ok' ? ok({ ...sent, checksum: checksum.val }) : checksum;
  } finally {
    // Ends the sending after a failure. Its checksum is not needed.
    if (!isSent) void from.device.ask(from.queue, { op: 'send-end', sending });
  }
}

/**
 * Brings a file to a GPU host. When the checksum holds, the host keeps a copy of the pages under the name of the file.
 * @returns true when the host keeps the copy, false when the file is too short or has another checksum
 */
export async function carryIn(
  from: CopyReader,
  { file, pages, bytes, checksum, fingerprint, pageSize, pageBytes }: DurableCopy,
  to: Side,
  stopReason: () => HandlerError | null,
): Promise<Outcome<boolean>> {
  const beginCall = { op: 'copy-begin', version: file, pages, fingerprint, pageSize, pageBytes } as const;
  const begun = await answerInTime(to.device.ask(to.queue, beginCall));
  if (begun.tag === 'err') return begun;
  let copy: number | undefined = begun.val;
  try {
    let remainingBytes = bytes;
    let isShort = false;
    const next = async () => {
      const length = Math.min(PIECE_BYTES, remainingBytes);
      remainingBytes -= length;
      const piece = await from.next(length);
      isShort ||= piece.tag === 'ok' && piece.val.length < length;
      return piece;
    };
    const failure = await movePieces({ next, take: takeAt(to, copy), bytes }, stopReason);
    if (failure) return isShort ? ok(false) : err(failure);
    const keptCopy = await answerInTime(to.device.ask(to.queue, { op: 'copy-end', copy, checksum }));
    if (keptCopy.tag === 'err' && keptCopy.val.tag !== 'invalid-argument') return keptCopy;
    // The host now keeps the copy, or has dropped it because the checksum did not hold.
    copy = undefined;
    return ok(keptCopy.tag === 'ok');
  } finally {
    if (copy !== undefined) to.device.send(to.queue, { op: 'copy-drop', copy });
  }
}
