import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { componentEmbed, componentNew, parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import { WIT_DIRECTORY } from '#wit/generate/generate.ts';

/** All of `wit/` as one text, the file with the package's name first. */
export async function witSource(): Promise<string> {
  const files = (await readdir(WIT_DIRECTORY)).filter((file) => file.endsWith('.wit') && file !== 'world.wit').sort();
  const texts = await Promise.all(['world.wit', ...files].map((file) => readFile(join(WIT_DIRECTORY, file), 'utf8')));
  return texts.join('\n');
}

/** Makes a core module in text form into a component of our world: guests that no toolchain would write. */
export async function watComponent(wat: string): Promise<Uint8Array> {
  return coreComponent(await parse(wat));
}

/** Makes a core module into a component of our world. */
export async function coreComponent(binary: Uint8Array): Promise<Uint8Array> {
  const embedded = await componentEmbed({ binary, witSource: await witSource(), world: 'inferlet' });
  return componentNew(embedded, []);
}
