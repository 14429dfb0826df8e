import { existsSync, mkdirSync, realpathSync } from 'node:fs';

/**
 * Makes the directory of artifacts and returns its real path, without symbolic links. The permissions of confined processes apply to real
 * paths, and Node loads modules from them.
 */
export function openArtifactsDirectory(directory: string): string {
  // When the path is a symbolic link, `mkdir` needs permission to write to it even if the directory exists.
  if (!existsSync(directory)) mkdirSync(directory, { recursive: true });
  return realpathSync(directory);
}
