import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { componentCache } from '#gateway/cli/paths.ts';
import { sha256 } from '#runtime/build/artifact/artifact.ts';
import { buildComponent } from '#runtime/build/index.ts';
import { TEST_COMPONENTS } from '#runtime/testing/cache.ts';
import { keepFile } from '#runtime/testing/components.ts';
import { ROOT } from './platform.ts';

/** Folders whose bundles contain only files of these folders and locked packages. */
const FOLDERS = ['functions', 'test/inferlets'];

let inputsHash: string | undefined;

/**
 * Returns the component built from a source. Even a cached `buildComponent` takes half a second of processor time, since it bundles the
 * source in a process. For a source in `FOLDERS`, a hash of all files in these folders finds the component without a process.
 */
export async function builtComponent(entry: string): Promise<Uint8Array> {
  const source = path.relative(ROOT, entry);
  if (!FOLDERS.some((folder) => source.startsWith(folder + path.sep))) return build(entry);
  inputsHash ??= hashOfInputs();
  const hashFile = path.join(TEST_COMPONENTS, `${sha256(`${source} ${inputsHash}`)}.built`);
  const knownHash = await readFile(hashFile, 'utf8').catch(() => null);
  const cached = knownHash === null ? null : await readFile(fileOf(knownHash)).catch(() => null);
  if (cached !== null) return cached;
  const component = await build(entry);
  const hash = sha256(component);
  await keepFile(fileOf(hash), component);
  await keepFile(hashFile, Buffer.from(hash));
  return component;
}

async function build(entry: string): Promise<Uint8Array> {
  const outcome = await buildComponent(entry, { store: componentCache() });
  assert.ok(outcome.ok, JSON.stringify(outcome));
  return outcome.component;
}

/** Components are named by content: a change of one function stores only that function's component anew. */
const fileOf = (hash: string): string => path.join(TEST_COMPONENTS, `${hash}.wasm`);

function hashOfInputs(): string {
  const exclude = (file: string) => /(^|\/)(node_modules|dist)(\/|$)|\.test\.ts$|\.md$/.test(file);
  const files = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.*`, { cwd: ROOT, exclude })).sort();
  const pathAndHash = (file: string): string => `${file} ${sha256(readFileSync(path.join(ROOT, file)))}`;
  return sha256(['package-lock.json', ...files].map(pathAndHash).join('\n'));
}
