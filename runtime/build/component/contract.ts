import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WIT = fileURLToPath(new URL('../../../wit', import.meta.url));
const WORLD = 'world.wit';
const IMPORT = /^\s*import ([a-z][a-z0-9-]*);\n/gm;

/** The whole contract as one text. It begins with the file that names the package. */
export async function contractText(): Promise<string> {
  const files = (await readdir(WIT)).filter((file) => file.endsWith('.wit') && file !== WORLD).sort();
  const texts = await Promise.all([WORLD, ...files].map((file) => readFile(join(WIT, file), 'utf8')));
  return texts.join('\n');
}

/**
 * Writes the contract as one file in `directory`, with a world that imports only a bundle's `interfaces` and the interfaces that these use.
 * Returns the file's path. The cut saves space: the engine adds 5 to 10 KB of code and memory for every import of its world, used or not.
 */
export async function writeContract(interfaces: ReadonlySet<string>, directory: string): Promise<string> {
  const path = join(directory, 'contract.wit');
  const contract = await contractText();
  await writeFile(
    path,
    contract.replace(IMPORT, (line, name: string) => (interfaces.has(name) ? line : '')),
  );
  return path;
}
