import { FileHead, type FileHeader } from './file-format.ts';
import type { PieceWriter } from './files.ts';
import type { DeviceTurns, Snapshot, SnapshotMemory } from './snapshot.ts';

/** Bytes of the saves under way, in total and by tenant. A save counts from the call that starts it, even while it waits. */
export class SavingBytes {
  #total = 0;
  readonly #tenants = new Map<string, number>();

  get total(): number {
    return this.#total;
  }

  bytesOf(tenant: string): number {
    return this.#tenants.get(tenant) ?? 0;
  }

  /** @param bytes negative when a save has ended */
  add(tenant: string, bytes: number): void {
    this.#total += bytes;
    const remainingBytes = this.bytesOf(tenant) + bytes;
    if (remainingBytes > 0) this.#tenants.set(tenant, remainingBytes);
    else this.#tenants.delete(tenant);
  }
}

/**
 * Copies a snapshot into its file, one buffer at a time: copies pages into the buffer between device steps, and writes the buffer to the disk while
 * steps run. Ends early, with the file incomplete, when `snapshotIfWanted` returns undefined.
 *
 * @param snapshotIfWanted returns the snapshot; undefined once the registry wants it no more and has released its pages
 */
export async function writeSnapshot<S extends Snapshot>(
  memory: SnapshotMemory<S>,
  snapshotIfWanted: () => S | undefined,
  header: FileHeader,
  write: PieceWriter,
  turns: DeviceTurns,
  bufferBytes: number,
): Promise<void> {
  const { pages, pageBytes } = header;
  const head = new FileHead(header);
  const pagesAtOnce = Math.min(pages, pagesPerBuffer(bufferBytes, pageBytes));
  const buffer = memory.takeBuffer(pagesAtOnce * pageBytes);
  const bufferOf = (index: number) => buffer.bytes.subarray(index * pageBytes, (index + 1) * pageBytes);
  try {
    for (let firstPage = 0; firstPage < pages; firstPage += pagesAtOnce) {
      const count = Math.min(pagesAtOnce, pages - firstPage);
      let copiedCount = 0;
      await turns.between(() => {
        const snapshot = snapshotIfWanted();
        const frozen = snapshot?.pages[firstPage + copiedCount];
        if (!snapshot || !frozen) return false;
        const { page, masked } = frozen;
        head.setPage(firstPage + copiedCount, { filled: page.filled, masked, positions: page.positions });
        memory.readPage(snapshot, firstPage + copiedCount, bufferOf(copiedCount));
        return ++copiedCount < count;
      });
      if (copiedCount < count) return;
      await memory.settled();
      const data = buffer.bytes.subarray(0, count * pageBytes);
      await head.setData(firstPage, data);
      await write(head.dataOffset + firstPage * pageBytes, data);
    }
    await write(0, await head.seal());
  } finally {
    buffer.release();
  }
}

/** Pages that fit into a buffer; at least one. */
export function pagesPerBuffer(bufferBytes: number, pageBytes: number): number {
  return Math.max(1, Math.floor(bufferBytes / pageBytes));
}
