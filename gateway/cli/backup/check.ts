import { createHash, type Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { ArchiveFault, type Description, readArchive } from './archive.ts';
import { checkedItems } from './entries.ts';
import { componentHash, holdsSealed, holdsVersions, isKeptFile } from './kept-keys.ts';
import { overheadBytes } from './room.ts';

/** Maximum files of one backup, since the check keeps their paths to find duplicates. */
const MAX_FILES = 1_000_000;
/** A sealed value begins with the id of its master key. */
const SEALED = /^([0-9a-f]{8})\.[\w-]+$/;
/** The part of a function version that is sealed. */
const versionSchema = z.object({ environment: z.record(z.string(), z.string()) });

/** Contents of a completely checked backup. */
export interface Contents extends Description {
  readonly records: number;
  readonly files: number;
  readonly recordBytes: number;
  readonly fileBytes: number;
  /** Memory that Redis takes for the records, approximately. */
  readonly memoryBytes: number;
  /** Ids of the master keys under which its secrets and the environments of its functions are sealed. */
  readonly masterKeys: ReadonlySet<string>;
}

/**
 * Reads a whole file and checks what a restore relies on: its format, its checksum, every record and path, and the hashes of components.
 * @throws ArchiveFault
 */
export async function checkArchive(file: FileHandle, onBytes: (bytes: number) => void): Promise<Contents> {
  let description: Description | undefined;
  const masterKeys = new Set<string>();
  const paths = new Set<string>();
  const component = new ComponentCheck();
  let [records, recordBytes, memoryBytes, fileBytes, bytes] = [0, 0, 0, 0, 0];
  /** Bytes of the present file of the home that its parts have not brought yet. */
  let remainingBytes = 0;
  /** Type and key of the record that the last frame belongs to; empty when the last frame was no part of a record. */
  let previousEntry = '';
  for await (const { header, body } of readArchive(file)) {
    if (header.kind !== 'part' && remainingBytes > 0)
      throw new ArchiveFault('A file in the backup is shorter than it says.');
    if (header.kind !== 'entry') {
      component.end();
      previousEntry = '';
    }
    switch (header.kind) {
      case 'backup':
        description = header;
        break;
      case 'entry': {
        const { key, items } = checkedItems(header, body);
        // The parts of a record must follow each other, the first part first: its restore deletes whatever was written under the key before.
        if (!header.first && previousEntry !== `${header.type} ${key}`)
          throw new ArchiveFault(`A part of ${key} is missing.`);
        previousEntry = `${header.type} ${key}`;
        if (header.first) records += 1;
        recordBytes += body.length;
        memoryBytes += body.length + overheadBytes(header.type, header.first, items);
        component.take(key, header.first, items);
        if (holdsSealed(key)) for (const item of items) addMasterKeyOf(item.toString('utf8'), masterKeys);
        if (holdsVersions(key)) for (const item of items) addMasterKeysOfVersion(item.toString('utf8'), masterKeys);
        break;
      }
      case 'file':
        if (!isKeptFile(header.path)) throw new ArchiveFault('The file has a path that no backup has.');
        if (paths.has(header.path)) throw new ArchiveFault(`The file has ${header.path} twice.`);
        if (paths.size >= MAX_FILES) throw new ArchiveFault(`The file has more than ${MAX_FILES} files.`);
        paths.add(header.path);
        remainingBytes = header.bytes;
        fileBytes += header.bytes;
        break;
      case 'part':
        if (body.length === 0 || body.length > remainingBytes)
          throw new ArchiveFault('A file in the backup is longer than it says.');
        remainingBytes -= body.length;
        break;
      case 'end':
        break;
    }
    bytes += body.length;
    onBytes(bytes);
  }
  if (description === undefined) throw new ArchiveFault('The file is not a backup of Pie.');
  return { ...description, records, files: paths.size, recordBytes, fileBytes, memoryBytes, masterKeys };
}

function addMasterKeyOf(text: string, masterKeys: Set<string>): void {
  const id = SEALED.exec(text)?.[1];
  if (id !== undefined) masterKeys.add(id);
}

/**
 * Adds the master keys of a function version's environment. Other items of the record (names of versions, states of
 * aliases) have no sealed values, so they add none.
 */
function addMasterKeysOfVersion(text: string, masterKeys: Set<string>): void {
  if (!text.startsWith('{')) return;
  try {
    const version = versionSchema.safeParse(JSON.parse(text));
    for (const sealed of Object.values(version.data?.environment ?? {})) addMasterKeyOf(sealed, masterKeys);
  } catch {
    // Not JSON: the platform cannot read such a version, whatever master keys it has.
  }
}

/** Compares the bytes of components with the hashes that name them. */
class ComponentCheck {
  #expected: string | undefined;
  #hash: Hash | undefined;

  take(key: string, first: boolean, items: readonly Buffer[]): void {
    if (first) {
      this.end();
      this.#expected = componentHash(key);
      this.#hash = this.#expected === undefined ? undefined : createHash('sha256');
    }
    for (const item of items) this.#hash?.update(item);
  }

  end(): void {
    const expected = this.#expected;
    this.#expected = undefined;
    if (expected !== undefined && this.#hash?.digest('hex') !== expected)
      throw new ArchiveFault(`The component ${expected} has other bytes than its name says.`);
  }
}
