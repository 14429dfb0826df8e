import { unexpected } from '#gpu-host/unexpected.ts';
import { CallFault, fault } from '../fault.ts';
import { type Entry, entryOf, type Maker, type Refusal, type Shelf, type Version } from './entry.ts';
import { decodeHeader, FileDamage, type FileHeader, openStored } from './file-format.ts';
import type { SnapshotFiles } from './files.ts';
import { type EntryKind, fileNameOf } from './names.ts';
import { pagesPerBuffer } from './saving.ts';
import type { Requester, Restoration, Snapshot, SnapshotMemory, StoredPage } from './snapshot.ts';

/** Reads the headers of a tenant's files, not their pages, and makes entries of them. A file that cannot be used becomes a refusal. */
export function readShelf<S>(files: SnapshotFiles, tenant: string, maker: Maker): Shelf<S> {
  const shelf: Shelf<S> = { entries: new Map(), refusals: new Map() };
  for (const fileName of withDiskFaults("the tenant's directory", () => files.list(tenant))) {
    const found = readFile<S>(files, tenant, fileName, maker);
    if ('fault' in found) shelf.refusals.set(fileName, found);
    else shelf.entries.set(fileName, found);
  }
  return shelf;
}

function readFile<S>(files: SnapshotFiles, tenant: string, fileName: string, maker: Maker): Entry<S> | Refusal {
  let header: FileHeader | undefined;
  let fileBytes = 0;
  try {
    const checked = files.read(tenant, fileName, (read, size) => {
      fileBytes = size;
      const decoded = decodeHeader(read, size);
      checkPlace(decoded, tenant, fileName);
      // Set before the next check, so that the refusal of another model's file has the header.
      header = decoded;
      checkMaker(decoded, maker);
      return decoded;
    });
    return storedEntry(checked, fileBytes);
  } catch (cause) {
    const problem = diskFault('this snapshot', cause);
    if (problem instanceof CallFault) return { fault: problem, fileName, fileBytes, header };
    throw problem;
  }
}

function storedEntry<S>(header: FileHeader, fileBytes: number): Entry<S> {
  const { tenant, name, file, pages, tokens, nextPosition } = header;
  const version: Version<S> = {
    pages,
    tokens,
    nextPosition,
    persistent: true,
    file,
    order: 0,
    snapshot: undefined,
    fileBytes,
  };
  return entryOf({ tenant, kind: kindOf(header), name }, version, true);
}

/**
 * Fills `restoration` with the pages of an entry's file, one buffer after the other: reads the disk into the buffer while device steps run, and
 * copies the buffer to memory between steps. Returns the file's header.
 * @throws CallFault `internal` when the file is damaged or cannot be read, `invalid-argument` when another model made it, `cancelled` when
 * the requester ends meanwhile
 */
export async function fillFromFile<S extends Snapshot>(
  files: SnapshotFiles,
  entry: Entry<S>,
  maker: Maker,
  restoration: Restoration<S>,
  requester: Requester<S>,
  { memory, bufferBytes }: Transfer<S>,
): Promise<FileHeader> {
  const { tenant, kind, name, current } = entry;
  const fileName = fileNameOf(kind, name);
  try {
    return await files.readPieces(tenant, fileName, async (read, size) => {
      const file = await openStored(read, size);
      const { header } = file;
      checkPlace(header, tenant, fileName);
      checkMaker(header, maker);
      if (header.pages !== current.pages) throw new FileDamage(`it has ${header.pages} pages, not ${current.pages}`);
      const { pages, pageBytes } = header;
      const source = {
        pages,
        pageBytes,
        pageAt: (index: number) => file.pageAt(index),
        readPages: (first: number, into: Uint8Array) => file.readPages(first, into),
      };
      await fillPages(source, restoration, requester, { memory, bufferBytes });
      return header;
    });
  } catch (cause) {
    throw diskFault(`"${name}"`, cause);
  }
}

/** Memory, and the size of the buffers through which pages get there. */
export interface Transfer<S extends Snapshot> {
  readonly memory: Pick<SnapshotMemory<S>, 'takeBuffer' | 'settled'>;
  /** Maximum bytes of a buffer; a buffer for a single page may be longer. */
  readonly bufferBytes: number;
}

/** Pages outside of the model's memory: in a file, or in a copy from another host. */
export interface PageSource {
  readonly pages: number;
  readonly pageBytes: number;
  /** The page at `index` without its keys and values. Called once for each page, in order, between device steps. */
  pageAt(index: number): StoredPage;
  /** Copies the keys and values of pages from `first` on, as many as `into` has room for. */
  readPages(first: number, into: Uint8Array): void | Promise<void>;
}

/**
 * Fills `restoration` with the pages of `source`, one buffer after the other: reads `source` into the buffer while device steps run, and copies the
 * buffer to memory between steps.
 * @throws CallFault `cancelled` when the requester ends meanwhile; what `source` throws
 */
export async function fillPages<S extends Snapshot>(
  source: PageSource,
  restoration: Restoration<S>,
  requester: Requester<S>,
  { memory, bufferBytes }: Transfer<S>,
): Promise<void> {
  const { pages, pageBytes } = source;
  const pagesAtOnce = Math.min(pages, pagesPerBuffer(bufferBytes, pageBytes));
  const buffer = memory.takeBuffer(pagesAtOnce * pageBytes);
  try {
    for (let first = 0; first < pages; first += pagesAtOnce) {
      const count = Math.min(pagesAtOnce, pages - first);
      await source.readPages(first, buffer.bytes.subarray(0, count * pageBytes));
      let filled = 0;
      await requester.between(() => {
        checkOpen(requester);
        const bytes = buffer.bytes.subarray(filled * pageBytes, (filled + 1) * pageBytes);
        restoration.fill(first + filled, source.pageAt(first + filled), bytes);
        return ++filled < count;
      });
      await memory.settled();
    }
  } finally {
    buffer.release();
  }
}

/** Checks that the requester has not ended. @throws CallFault `cancelled` */
export function checkOpen<S extends Snapshot>({ hasEnded }: Requester<S>): void {
  if (hasEnded) throw endedFault();
}

export function endedFault(): CallFault {
  return fault('cancelled', 'the inferlet ended while a snapshot was brought back from disk');
}

function kindOf(header: FileHeader): EntryKind {
  return header.file ? 'file' : 'export';
}

/** @throws FileDamage when the header names another entry, so that its owner and rights do not apply */
function checkPlace(header: FileHeader, tenant: string, fileName: string): void {
  if (header.tenant !== tenant || fileNameOf(kindOf(header), header.name) !== fileName) {
    throw new FileDamage('it has the place of another name');
  }
}

/** @throws CallFault `invalid-argument`, with the names of both models, when another model made the file */
function checkMaker(header: FileHeader, maker: Maker): void {
  const { fingerprint, pageSize, pageBytes } = maker;
  const isSameModel = header.fingerprint.hash === fingerprint.hash;
  if (isSameModel && header.pageSize === pageSize && header.pageBytes === pageBytes) return;
  const describe = (made: Maker): string =>
    `${made.fingerprint.name}, fingerprint ${made.fingerprint.hash.slice(0, 12)}, ${made.pageBytes} bytes a page of ${made.pageSize}`;
  throw fault(
    'invalid-argument',
    `"${header.name}" was made by another model: by ${describe(header)}; this is ${describe(maker)}. Remove it, or serve the model that made it`,
  );
}

/** Runs a file operation. @throws CallFault for damage or a disk error */
function withDiskFaults<T>(what: string, body: () => T): T {
  try {
    return body();
  } catch (cause) {
    throw diskFault(what, cause);
  }
}

/** Turns a file error into the error of a call. A CallFault, or a bug, stays as it is. */
function diskFault(what: string, cause: unknown): unknown {
  if (cause instanceof FileDamage) return fault('internal', `${what} is damaged on disk: ${cause.message}`);
  if (cause instanceof Error && 'syscall' in cause) {
    return fault('internal', `${what} cannot be read from disk: ${unexpected(cause)}`);
  }
  return cause;
}
