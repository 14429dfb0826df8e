import { existsSync, realpathSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root of this copy of Pie: the clone, or the installed package. */
export const ROOT = path.resolve(fileURLToPath(new URL('..', import.meta.url)));

/** True when this copy was installed as a package rather than cloned. */
export const INSTALLED = path.basename(path.dirname(ROOT)) === 'node_modules';

/** Default home: `.pie` in the clone; for a package, in the user's directory, since a reinstall clears the package's folder. */
export function defaultHome(): string {
  return path.join(INSTALLED ? os.homedir() : ROOT, '.pie');
}

/** `node_modules` folders that this copy uses, in Node's lookup order (nearest first); each also by its real path. */
export function packageFolders(): string[] {
  const folders: string[] = [];
  for (let ancestor = ROOT; ; ancestor = path.dirname(ancestor)) {
    const folder = path.basename(ancestor) === 'node_modules' ? ancestor : path.join(ancestor, 'node_modules');
    if (existsSync(folder)) folders.push(folder, realpathSync(folder));
    if (ancestor === path.dirname(ancestor)) return [...new Set(folders)];
  }
}

/** Folder of an installed package that this copy uses; undefined when it is missing. */
export function packageFolder(name: string): string | undefined {
  return packageFolders()
    .map((folder) => path.join(folder, name))
    .find((folder) => existsSync(folder));
}

/**
 * Paths of an installed package: the one that Node finds, and the one without links, since package managers such as pnpm link packages. A
 * thread that may read these can import the package.
 */
export function packagePaths(name: string): readonly string[] {
  const folder = packageFolder(name);
  if (folder === undefined)
    throw new Error(`The package ${name} is not installed. Install this copy's packages again.`);
  return [...new Set([folder, realpathSync(folder)])];
}

/**
 * Path of the Node that runs the platform's programs: one that an npm package contains (the same names as in `gateway/cli/bin.js`), else
 * this process's own.
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
