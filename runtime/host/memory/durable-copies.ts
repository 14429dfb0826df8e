import type { SentPages } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { PIECE_BYTES } from '#gpu-host/protocol/wire.ts';
import type {
  CopyBounds,
  DurableCopy,
  DurableNames,
  Kept,
  NameOwner,
  NameOwners,
  OwnedName,
  Removal,
} from '#scheduler/exports/exports.ts';
import { fromStore } from '../services/ask.ts';
import { answerInTime, movePieces, nextFrom, type Side, takeAt } from './other-hosts.ts';
import { type CopyReader, type CopyWriter, damaged, type SharedDirectory } from './shared-directory.ts';

type Records = Pick<DurableNames, 'look' | 'list' | 'keep' | 'remove' | 'drop' | 'forgotten'>;

export interface DurableCopiesOptions {
  readonly records: Records;
  readonly owners: Pick<NameOwners, 'of'>;
  readonly directory: SharedDirectory;
  /** Bounds of one tenant's copies together. */
  readonly bounds: CopyBounds;
  /** Maximum bytes of one copy. */
  readonly largestBytes?: number;
}

/** A host takes no larger transfer (see `gpu-host/memory/copies.ts`), so no host could read a larger copy. */
const LARGEST_BYTES = 512 * 2 ** 20;

/** Passed as the host in requests for copies alone: no host has this name, so the store finds no removals that a host must still make. */
const NO_HOST = '';

/** Content to be copied: pages that are mapped at the GPU host of `side`, and the owner's entry in Redis, read before the pages were mapped. */
export interface Content {
  readonly name: OwnedName;
  readonly owner: NameOwner;
  readonly side: Side;
  readonly pages: Uint32Array;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly access: DurableCopy['access'];
}

/** Copies of names in the shared directory: their files, and the entries in Redis that make the files count. */
export class DurableCopies {
  readonly #records: Records;
  readonly #owners: Pick<NameOwners, 'of'>;
  readonly #directory: SharedDirectory;
  readonly #bounds: CopyBounds;
  readonly #largestBytes: number;

  constructor({ records, owners, directory, bounds, largestBytes = LARGEST_BYTES }: DurableCopiesOptions) {
    this.#records = records;
    this.#owners = owners;
    this.#directory = directory;
    this.#bounds = bounds;
    this.#largestBytes = largestBytes;
  }

  /** The noted copy of a name, and the removal of the name that `host` must still make. @throws StoreError */
  look(
    name: OwnedName,
    host: string,
  ): Promise<{ readonly copy: DurableCopy | null; readonly removal: Removal | null }> {
    return this.#records.look(name, host);
  }

  /** The noted copies of a tenant, and the removals that `host` must still make. @throws StoreError */
  list(tenant: string, host: string): ReturnType<DurableNames['list']> {
    return this.#records.list(tenant, host);
  }

  /**
   * Writes a copy: its file, then its entry. After an error the new copy does not count, unless the store noted it and the answer was lost.
   * @param stopReason returns the reason to stop, if any; called before each piece of the file
   */
  async write(content: Content, stopReason: () => HandlerError | null): Promise<Outcome<undefined>> {
    const { name } = content;
    try {
      const copies = await this.#current(name.tenant);
      const otherCopies = copies.filter((each) => !isSame(each.name, name)).map(({ copy }) => copy);
      const usage = { copies: otherCopies.length, bytes: otherCopies.reduce((sum, { bytes }) => sum + bytes, 0) };
      const begun = await this.#directory.begin(name);
      // Here `not-found` means that the platform's folder is missing. An inferlet would take it for a missing name.
      if (begun.tag === 'err') return begun.val.tag === 'not-found' ? err({ ...begun.val, tag: 'unavailable' }) : begun;
      const writer = begun.val;
      let isKept = false;
      try {
        await this.#directory.sweep(name.tenant, new Set(copies.map(({ copy }) => copy.file)), writer.now);
        const refusal = (bytes: number) => this.#refusal(usage, bytes);
        const sent = await carryOut(content.side, content.pages, writer, refusal, stopReason);
        if (sent.tag === 'err') return sent;
        const copy = copyOf(content, writer, sent.val);
        const finished = await writer.finish(name, copy);
        if (finished.tag === 'err') return finished;
        const stopError = stopReason();
        if (stopError) return err(stopError);
        // Until the store answers, the entry may name the file already, so the file must stay.
        isKept = true;
        const keepOutcome = await this.#keep(name, content.owner, copy);
        isKept = keepOutcome.is === 'kept';
        if (keepOutcome.is === 'changed') return err(CHANGED);
        // `#refusal` checks the same bounds as the store, so it returns an error here. `CHANGED` only completes the type.
        if (keepOutcome.is === 'full') return err(this.#refusal(keepOutcome, copy.bytes) ?? CHANGED);
        // After a lost connection the script may run twice. The second run then replaces the entry of this same copy, whose file must stay.
        if (keepOutcome.replaced && keepOutcome.replaced.file !== copy.file)
          await this.#directory.remove(name, keepOutcome.replaced);
        return ok(undefined);
      } finally {
        if (!isKept) await writer.discard();
      }
    } catch (error) {
      return err(fromStore(error));
    }
  }

  /** Brings a copy to a host, which keeps it under the name of its file. */
  async bring(
    name: OwnedName,
    copy: DurableCopy,
    to: Side,
    stopReason: () => HandlerError | null,
  ): Promise<Outcome<undefined>> {
    const opened = await this.#directory.read(name, copy);
    if (opened.tag === 'err') return opened;
    try {
      const carried = await carryIn(opened.val, copy, to, stopReason);
      if (carried.tag === 'err') return carried;
      return carried.val ? ok(undefined) : err(damaged(name.name, 'its file has changed'));
    } finally {
      await opened.val.close();
    }
  }

  /** Checks that the file of a copy is there, and has the copy's length and header. */
  async check(name: OwnedName, copy: DurableCopy): Promise<Outcome<undefined>> {
    const opened = await this.#directory.read(name, copy);
    if (opened.tag === 'err') return opened;
    await opened.val.close();
    return ok(undefined);
  }

  /** Removes a name with its copy. @param isAway true when the owner cannot be asked and may still have the content @throws StoreError */
  async remove(name: OwnedName, owner: NameOwner, copy: DurableCopy, isAway: boolean): Promise<Outcome<undefined>> {
    if (!(await this.#records.remove(name, owner, copy, isAway))) return err(CHANGED);
    await this.#directory.remove(name, copy);
    return ok(undefined);
  }

  /** Drops the copy of a name unless its content was saved with `claim`. A later save has replaced any other content. @throws StoreError */
  async end(name: OwnedName, claim: string): Promise<void> {
    const { copy } = await this.#records.look(name, NO_HOST);
    if (copy && copy.claim !== claim) await this.#drop(name, copy);
  }

  /** Notes that a host has made a removal. @throws StoreError */
  forgotten(name: OwnedName, host: string, removal: Removal): Promise<void> {
    return this.#records.forgotten(name, host, removal);
  }

  /** The tenant's copies that count. Drops the others: their names were removed or replaced. @throws StoreError */
  async #current(tenant: string): Promise<readonly { readonly name: OwnedName; readonly copy: DurableCopy }[]> {
    const { copies } = await this.#records.list(tenant, NO_HOST);
    const owners = await Promise.all(copies.map(({ name }) => this.#owners.of(name)));
    const isCurrent = copies.map(({ copy }, i) => owners[i]?.claim === copy.claim);
    await Promise.all(copies.map(({ name, copy }, i) => isCurrent[i] || this.#drop(name, copy)));
    return copies.filter((_, i) => isCurrent[i]);
  }

  /**
   * Notes a copy in Redis. When the store's answer is lost, reads the entry, and removes the file if the entry does not name it.
   * @throws StoreError; when the entry cannot be read either, the file stays, and a later `sweep` removes it if no entry names it
   */
  async #keep(name: OwnedName, owner: NameOwner, copy: DurableCopy): Promise<Kept> {
    try {
      return await this.#records.keep(name, owner, copy, this.#bounds);
    } catch (error) {
      const { copy: noted } = await this.#records.look(name, owner.host);
      if (noted?.file === copy.file) return { is: 'kept', replaced: null };
      await this.#directory.remove(name, copy);
      throw error;
    }
  }

  /** Removes the entry of a copy, if it is still noted, and its file. @throws StoreError */
  async #drop(name: OwnedName, copy: DurableCopy): Promise<void> {
    if (await this.#records.drop(name, copy)) await this.#directory.remove(name, copy);
  }

  /** The error when a copy of this many bytes is too large, or has no room beside the tenant's other copies (`usage`); null otherwise. */
  #refusal(usage: CopyBounds, bytes: number): HandlerError | null {
    const largest = this.#largestBytes;
    if (bytes > largest) {
      return handlerError('limit-exceeded', `the name has ${bytes} bytes; at most ${largest} can be made durable`);
    }
    const { copies: maxCopies, bytes: maxBytes } = this.#bounds;
    if (usage.copies + 1 <= maxCopies && usage.bytes + bytes <= maxBytes) return null;
    return handlerError(
      'limit-exceeded',
      `the tenant's durable names are ${usage.copies} of ${maxCopies} with ${usage.bytes} of ${maxBytes} bytes, so there is no room for ` +
        `${bytes} bytes more. Remove names that are not needed`,
    );
  }
}

/** The error for a name that has other content than when its entry was read. */
export const CHANGED = handlerError('unavailable', 'the name was saved anew or removed meanwhile; try again');

function copyOf(
  content: Content,
  { file }: CopyWriter,
  sent: Pick<DurableCopy, 'bytes' | 'checksum' | 'pages' | 'fingerprint' | 'pageSize' | 'pageBytes'>,
): DurableCopy {
  const { owner, tokens, nextPosition, access } = content;
  const { bytes, checksum, pages, fingerprint, pageSize, pageBytes } = sent;
  return {
    claim: owner.claim,
    file,
    bytes,
    checksum,
    fingerprint,
    pageSize,
    pageBytes,
    pages,
    tokens,
    nextPosition,
    access,
  };
}

/** Compares two names of the same tenant. */
function isSame(a: OwnedName, b: OwnedName): boolean {
  return a.model === b.model && a.kind === b.kind && a.name === b.name;
}

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
