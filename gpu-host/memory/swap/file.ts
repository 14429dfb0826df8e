import { randomUUID } from 'node:crypto';
import { closeSync, mkdirSync, openSync, read, readSync, rmSync, write, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** A file of equal slots, addressed by number. Every method may throw disk errors. */
export interface SlotFile {
  write(slot: number, bytes: Uint8Array): void;
  /** As `write`, on another thread. `close` must not be called meanwhile. */
  writeAsync(slot: number, bytes: Uint8Array): Promise<void>;
  read(slot: number, into: Uint8Array): void;
  /** As `read`, on another thread. `close` must not be called meanwhile. */
  readAsync(slot: number, into: Uint8Array): Promise<void>;
  close(): void;
}

/**
 * Makes an unnamed file in `directory`: no other process can open it, and its room is freed on close or at this process's end.
 * @throws file system errors
 */
export function openUnnamedFile(directory: string, slotBytes: number): SlotFile {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `swap-${randomUUID()}`);
  const fd = openSync(path, 'wx+', 0o600);
  try {
    rmSync(path);
  } catch (cause) {
    closeSync(fd);
    throw cause;
  }
  return slotFile(fd, slotBytes);
}

const readPart = promisify(read);
const writePart = promisify(write);

/** The slots of an open file; closing it closes `fd`. */
export function slotFile(fd: number, slotBytes: number): SlotFile {
  return {
    write(slot, bytes) {
      for (let done = 0; done < slotBytes; ) {
        const written = writeSync(fd, bytes, done, slotBytes - done, slot * slotBytes + done);
        done += checkWritten(written);
      }
    },
    async writeAsync(slot, bytes) {
      for (let done = 0; done < slotBytes; ) {
        const { bytesWritten } = await writePart(fd, bytes, done, slotBytes - done, slot * slotBytes + done);
        done += checkWritten(bytesWritten);
      }
    },
    read(slot, into) {
      for (let done = 0; done < slotBytes; ) {
        const bytes = readSync(fd, into, done, slotBytes - done, slot * slotBytes + done);
        done += checkRead(bytes, done, slotBytes);
      }
    },
    async readAsync(slot, into) {
      for (let done = 0; done < slotBytes; ) {
        const { bytesRead } = await readPart(fd, into, done, slotBytes - done, slot * slotBytes + done);
        done += checkRead(bytesRead, done, slotBytes);
      }
    },
    close: () => closeSync(fd),
  };
}

/** @throws Error at the end of the file */
function checkRead(bytes: number, done: number, slotBytes: number): number {
  if (bytes === 0) throw new Error(`the file ends after ${done} of ${slotBytes} bytes`);
  return bytes;
}

/** @throws Error for a disk that writes no bytes and reports no error, which would hang the host */
function checkWritten(bytes: number): number {
  if (bytes === 0) throw new Error('the disk took no bytes');
  return bytes;
}
