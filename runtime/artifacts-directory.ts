import { existsSync, mkdirSync, realpathSync } from 'node:fs';

/**
 * Makes the directory of artifacts, and says where it really is: processes that may read or write it alone are held to the path behind
 * symbolic links, and modules are loaded from there.
 */
export function openArtifactsDirectory(directory: string): string {
  // Even to make what is there already takes the right to write to the link.
  if (!existsSync(directory)) mkdirSync(directory, { recursive: true });
  return realpathSync(directory);
}
