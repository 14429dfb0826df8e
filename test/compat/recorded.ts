import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';
import type { WitWorld } from '#wit/generate/model.ts';
import { parse } from '#wit/generate/parse.ts';
import { resolve } from '#wit/generate/resolve.ts';

/** Folder of the recorded versions. */
export const FOLDER = path.dirname(fileURLToPath(import.meta.url));

/** Input and answer of a recorded call. */
export interface Call {
  readonly input: unknown;
  readonly output: unknown;
}

/** Calls by component. */
export type Recorded = Readonly<Record<string, readonly Call[]>>;

export const recordedCalls = async (version: string): Promise<Recorded> =>
  JSON.parse(await readFile(path.join(FOLDER, version, 'recorded.json'), 'utf8')) as Recorded;

export async function recordedComponent(version: string, name: string): Promise<Uint8Array> {
  return promisify(brotliDecompress)(await readFile(path.join(FOLDER, version, `${name}.wasm.br`)));
}

export async function recordedContract(version: string): Promise<WitWorld> {
  const text = await readFile(path.join(FOLDER, version, 'contract.wit'), 'utf8');
  return resolve([parse(`${version}/contract.wit`, text)], 'inferlet');
}
