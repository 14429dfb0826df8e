import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { componentCache } from '#gateway/cli/paths.ts';
import { sha256 } from '#runtime/build/artifact/hash.ts';
import { buildComponent } from '#runtime/build/index.ts';
import { TEST_COMPONENTS } from '#runtime/testing/cache.ts';
import { keepFile } from '#runtime/testing/components.ts';
import { ROOT } from './platform.ts';

/** Folders whose bundles contain only files of these folders and locked packages. */
const FOLDERS = ['functions', 'test/inferlets'];

let inputs: string | undefined;

/**
 * The component of a source. A build of known content takes half a second of processor time, as a process bundles the source to recognise
 * it. A source of `FOLDERS` is recognised by the content of all of them, and needs no process.
 */
export async function builtComponent(entry: string): Promise<Uint8Array> {
  const source = path.relative(ROOT, entry);
  if (!FOLDERS.some((folder) => source.startsWith(folder + path.sep))) return build(entry);
  inputs ??= hashOfInputs();
  const note = path.join(TEST_COMPONENTS, `${sha256(`${source} ${inputs}`)}.built`);
  const known = await readFile(note, 'utf8').catch(() => null);
  const kept = known === null ? null : await readFile(fileOf(known)).catch(() => null);
  if (kept !== null) return kept;
  const component = await build(entry);
  const hash = sha256(component);
  await keepFile(fileOf(hash), component);
  await keepFile(note, Buffer.from(hash));
  return component;
}

async function build(entry: string): Promise<Uint8Array> {
  const outcome = await buildComponent(entry, { store: componentCache() });
  assert.ok(outcome.ok, JSON.stringify(outcome));
  return outcome.component;
}

/** Components are kept by content: a change of one function adds one. */
const fileOf = (hash: string): string => path.join(TEST_COMPONENTS, `${hash}.wasm`);

function hashOfInputs(): string {
  const exclude = (file: string) => /(^|\/)(node_modules|dist)(\/|$)|\.test\.ts$|\.md$/.test(file);
  const files = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.*`, { cwd: ROOT, exclude })).sort();
  const read = (file: string): string => `${file} ${sha256(readFileSync(path.join(ROOT, file)))}`;
  return sha256(['package-lock.json', ...files].map(read).join('\n'));
}
