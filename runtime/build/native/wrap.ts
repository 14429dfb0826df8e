import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { componentEmbed, componentNew } from '@bytecodealliance/jco-transpile/wasm-tools';

const WIT = fileURLToPath(new URL('../../../wit', import.meta.url));
const WORLD = 'world.wit';

/** The whole contract as one text, the file with the package's name first. */
export async function contractText(): Promise<string> {
  const files = (await readdir(WIT)).filter((file) => file.endsWith('.wit') && file !== WORLD).sort();
  const texts = await Promise.all([WORLD, ...files].map((file) => readFile(join(WIT, file), 'utf8')));
  return texts.join('\n');
}

/** Makes a core module with the contract's imports and exports into a component. @throws wit-component's error for any other module */
export async function wrapModule(module: Uint8Array): Promise<Uint8Array> {
  const embedded = await componentEmbed({ binary: module, witSource: await contractText(), world: 'inferlet' });
  return componentNew(embedded, []);
}
