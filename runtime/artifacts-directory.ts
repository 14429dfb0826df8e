import { existsSync, mkdirSync, realpathSync } from 'node:fs';

/**
 * Makes the directory of artifacts and returns its real path: permissions of processes that may access only this directory apply to the
 * path behind symbolic links, and modules are loaded from there.
 */
export function openArtifactsDirectory(directory: string): string {
  // `mkdir` needs write permission on a symbolic link even when the directory exists.
  if (!existsSync(directory)) mkdirSync(directory, { recursive: true });
  return realpathSync(directory);
}
