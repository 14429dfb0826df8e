import { constants } from 'node:fs';
import { chmod, copyFile, link, open, realpath, rename, stat } from 'node:fs/promises';
import { dirname, relative } from 'node:path';
import { ModelError } from './errors.ts';
import { versionOf } from './safetensors.ts';

/** Permission of anyone to write a file. */
const WRITABLE = 0o222;

/**
 * Puts a file into a directory of the model cache, in the cheapest way after which nothing but the cache can change it there. GPU hosts map the file: if
 * another program shortened it meanwhile, the system would end the host (SIGBUS) with all its tenants. In this order:
 *
 * 1. A file inside the destination's directory, such as a download, is moved.
 * 2. A file system that can share blocks between files (btrfs, XFS, APFS) makes a reflink: no byte is copied, and a change of one file
 *    leaves the other one as it is.
 * 3. A file of this user that has no write permission gets a hard link. To write it, someone must first change its mode. A link to a file with write
 *    permission would share later changes.
 * 4. Any other file is copied.
 *
 * The place never is a symbolic link, because what it names could be replaced.
 *
 * @throws ModelError `malformed-weights` when the file changed while it was copied
 */
export async function placeFile(
  source: string,
  destination: string,
): Promise<'moved' | 'cloned' | 'linked' | 'copied'> {
  const file = await realpath(source);
  if (!relative(await realpath(dirname(destination)), file).startsWith('..')) {
    await rename(file, destination);
    return 'moved';
  }
  if (await succeeds(copyFile(file, destination, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL))) {
    await chmod(destination, 0o644);
    return 'cloned';
  }
  const before = await stat(file, { bigint: true });
  const isOwn = Number(before.uid) === process.getuid?.();
  if (isOwn && (Number(before.mode) & WRITABLE) === 0 && (await succeeds(link(file, destination)))) return 'linked';
  await copyFile(file, destination);
  if (versionOf(await stat(file, { bigint: true })) !== versionOf(before))
    throw new ModelError('malformed-weights', `${source} changed while it was copied`, { hint: 'pull it again' });
  await chmod(destination, 0o644);
  await sync(destination);
  return 'copied';
}

/** False for a file system that cannot do it. The next way, or a copy, reports other reasons. */
function succeeds(attempt: Promise<void>): Promise<boolean> {
  return attempt.then(
    () => true,
    () => false,
  );
}

async function sync(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
