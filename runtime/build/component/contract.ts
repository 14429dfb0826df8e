import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WIT = fileURLToPath(new URL('../../../wit', import.meta.url));
const WORLD = 'world.wit';
const IMPORT = /^\s*import ([a-z][a-z0-9-]*);\n/gm;

/** The whole contract as one text, the file with the package's name first. */
export async function contractText(): Promise<string> {
  const files = (await readdir(WIT)).filter((file) => file.endsWith('.wit') && file !== WORLD).sort();
  const texts = await Promise.all([WORLD, ...files].map((file) => readFile(join(WIT, file), 'utf8')));
  return texts.join('\n');
}

/**
 * Writes the contract with a world that imports only a bundle's interfaces, as one file in `directory`, and returns its path. The engine
 * adds code and memory for every import of its world, used or not: 5 to 10 KB per interface. Interfaces that these use are imported, too.
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
