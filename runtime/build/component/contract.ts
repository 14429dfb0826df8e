import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WIT = fileURLToPath(new URL('../../../wit', import.meta.url));
const WORLD = 'world.wit';

/** The whole contract as one text. It begins with the file that names the package. */
export async function contractText(): Promise<string> {
  const files = (await readdir(WIT)).filter((file) => file.endsWith('.wit') && file !== WORLD).sort();
  const texts = await Promise.all([WORLD, ...files].map((file) => readFile(join(WIT, file), 'utf8')));
  return texts.join('\n');
}
