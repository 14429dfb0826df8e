import { existsSync, realpathSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root of this copy of Pie: the clone, or the installed package. */
export const ROOT = path.resolve(fileURLToPath(new URL('..', import.meta.url)));

/** Whether this copy was installed as a package rather than cloned. */
export const INSTALLED = path.basename(path.dirname(ROOT)) === 'node_modules';

/** Where a platform keeps everything without `PIE_HOME`: `.pie` in the clone, or in the user's directory, since installing again clears a package's. */
export function defaultHome(): string {
  return path.join(INSTALLED ? os.homedir() : ROOT, '.pie');
}

/** Folders that hold the packages that this copy uses, nearest first, as Node looks for them; each also by the path that it really has. */
export function packageFolders(): string[] {
  const folders: string[] = [];
  for (let at = ROOT; ; at = path.dirname(at)) {
    const folder = path.basename(at) === 'node_modules' ? at : path.join(at, 'node_modules');
    if (existsSync(folder)) folders.push(folder, realpathSync(folder));
    if (at === path.dirname(at)) return [...new Set(folders)];
  }
}

/** Folder of an installed package that this copy uses; undefined when it is missing. */
export function packageFolder(name: string): string | undefined {
  return packageFolders()
    .map((folder) => path.join(folder, name))
    .find((folder) => existsSync(folder));
}

/**
 * The Node that the platform's programs run under: the one that a package brought (the same names as in `gateway/cli/bin.js`), else this
 * process's own.
 */
export function pinnedNode(): string {
  const { platform, arch, execPath } = process;
  const names = ['node', `node-${platform}-${arch}`, `node-bin-${platform}-${arch}`];
  for (const folder of packageFolders()) {
    for (const name of names) {
      const program = path.join(folder, name, 'bin', 'node');
      if (existsSync(program)) return program;
    }
  }
  return execPath;
}
