import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { componentEmbed, componentNew } from '@bytecodealliance/jco-transpile/wasm-tools';
import { contractText } from '../component/contract.ts';
import type { Source } from '../component/source.ts';
import { BuildError } from '../outcome.ts';
import type { Compiled } from './compiler.ts';

/** Makes a core module with the contract's imports and exports into a component. @throws wit-component's error for any other module */
export async function wrapModule(module: Uint8Array): Promise<Uint8Array> {
  const embedded = await componentEmbed({ binary: module, witSource: await contractText(), world: 'inferlet' });
  return componentNew(embedded, []);
}

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
