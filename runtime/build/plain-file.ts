import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

/** Maximum bytes of each file that describes an artifact: artifact.json, the plan, the measured starts. */
export const MAX_DESCRIPTION_BYTES = 8 << 20;

/**
 * Reads a file that an untrusted process may have made. Such a process can also leave a link, a pipe that never opens, or a file of any length.
 *
 * @throws Error when the path is not a regular file of at most `maxBytes`
 */
export async function readPlainFile(path: string, maxBytes: number): Promise<Buffer> {
  // Without O_NONBLOCK, opening a pipe holds a thread of this process until a writer comes.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const info = await file.stat();
    if (!info.isFile()) throw new Error(`${path} is not a regular file`);
    if (info.size > maxBytes) throw new Error(`${path} has ${info.size} bytes; ${maxBytes} is the limit`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}
