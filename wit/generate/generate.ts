import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { emitGuest } from './emit-guest.ts';
import { emitHost } from './emit-host.ts';
import { emitWorld } from './emit-world.ts';
import type { WitWorld } from './model.ts';
import { parse } from './parse.ts';
import { resolve } from './resolve.ts';

/** The folder that holds the contract, `wit/`. */
export const WIT_DIRECTORY = fileURLToPath(new URL('..', import.meta.url));

/** Reads and resolves the world of `wit/*.wit`. */
export async function readWorld(directory = WIT_DIRECTORY, name = 'inferlet'): Promise<WitWorld> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.wit')).sort();
  const parsed = await Promise.all(
    files.map(async (file) => parse(file, await readFile(join(directory, file), 'utf8'))),
  );
  return resolve(parsed, name);
}

/** Contents of the generated files, by name. */
export async function render(): Promise<ReadonlyMap<string, string>> {
  const world = await readWorld();
  return new Map([
    ['guest.d.ts', emitGuest(world)],
    ['host.ts', emitHost(world)],
    ['world.ts', emitWorld(world)],
  ]);
}

/** Writes `wit/generated`; answers the paths written. */
export async function generate(directory = join(WIT_DIRECTORY, 'generated')): Promise<string[]> {
  await mkdir(directory, { recursive: true });
  const paths: string[] = [];
  for (const [name, text] of await render()) {
    const path = join(directory, name);
    await writeFile(path, text);
    paths.push(path);
  }
  return paths;
}
