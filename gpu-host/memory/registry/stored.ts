import { CallFault, fault } from '../fault.ts';
import type { Entry, Maker, Refusal, Shelf, Version } from './entry.ts';
import { decodeFile, decodeHeader, FileDamage, type FileHeader } from './file-format.ts';
import type { SnapshotFiles } from './files.ts';
import { type EntryKind, fileNameOf } from './names.ts';
import type { Restore, Snapshot } from './snapshot.ts';

/** A tenant's entries on disk, from the files' headers. Does not read the pages. */
export function readShelf<S>(files: SnapshotFiles, tenant: string, maker: Maker): Shelf<S> {
  const shelf: Shelf<S> = { entries: new Map(), refusals: new Map() };
  for (const fileName of explained("the tenant's directory", () => files.list(tenant))) {
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
      header = decoded;
      checkMaker(header, maker);
      return header;
    });
    return entryOf(checked, fileBytes);
  } catch (cause) {
    const problem = diskFault('this snapshot', cause);
    if (problem instanceof CallFault) return { fault: problem, fileName, fileBytes, header };
    throw problem;
  }
}

function entryOf<S>(header: FileHeader, fileBytes: number): Entry<S> {
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
    lastUse: 0,
  };
  return { tenant, kind: kindOf(header), name, current: version, settled: version, lock: undefined, removed: false };
}

/**
 * The pages of an entry's file, made by `restore`, whose errors pass through.
 * @throws CallFault `internal` when the file is damaged or cannot be read, `invalid-argument` when another model made it
 */
export function restoreFile<S extends Snapshot>(
  files: SnapshotFiles,
  entry: Entry<S>,
  maker: Maker,
  restore: Restore<S>,
): S {
  const { tenant, kind, name } = entry;
  const fileName = fileNameOf(kind, name);
  const what = `"${name}"`;
  return explained(what, () =>
    files.read(tenant, fileName, (read, size) => {
      const { header, pages, readPage } = decodeFile(read, size);
      checkPlace(header, tenant, fileName);
      checkMaker(header, maker);
      const { tokens, nextPosition } = header;
      return restore({
        tenant,
        pages,
        tokens,
        nextPosition,
        readPage: (index, into) => explained(what, () => readPage(index, into)),
      });
    }),
  );
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

/** @throws CallFault `invalid-argument` naming both models when another model made the file */
function checkMaker(header: FileHeader, maker: Maker): void {
  const { fingerprint, pageSize, pageBytes } = maker;
  const same = header.fingerprint.hash === fingerprint.hash;
  if (same && header.pageSize === pageSize && header.pageBytes === pageBytes) return;
  const describe = (made: Maker): string =>
    `${made.fingerprint.name}, fingerprint ${made.fingerprint.hash.slice(0, 12)}, ${made.pageBytes} bytes a page of ${made.pageSize}`;
  throw fault(
    'invalid-argument',
    `"${header.name}" was made by another model: by ${describe(header)}; this is ${describe(maker)}. Remove it, or serve the model that made it`,
  );
}

/** Runs a file operation. @throws CallFault for damage or a disk error */
function explained<T>(what: string, body: () => T): T {
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
    return fault('internal', `${what} cannot be read from disk: ${cause.message}`);
  }
  return cause;
}
