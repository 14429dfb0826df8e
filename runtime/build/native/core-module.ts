import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Source } from '../component/source.ts';
import { BuildError } from '../outcome.ts';
import type { Compiled } from './compiler.ts';
import { wrapModule } from './wrap.ts';

/** Reads a core module that another build tool made, such as Cargo. */
export const readModule = async ({ entry }: Source): Promise<Compiled> => ({
  module: await readFile(entry),
  files: [basename(entry)],
});

/** Makes a component from a module of another build tool. @throws BuildError when its imports or exports do not match the contract */
export async function wrapForeign(module: Uint8Array): Promise<Uint8Array> {
  try {
    return await wrapModule(module);
  } catch (error) {
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).trim().split('\n').slice(-1);
    throw new BuildError(
      'core-module',
      `This core Wasm module does not fit the contract of inferlets: ${reason.slice(0, 500)}`,
      'Export `memory`, `run` and `cabi_realloc`, and import only calls of pie:inferlet; docs/rust.md shows how with Cargo.',
    );
  }
}
