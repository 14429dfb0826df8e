import { closeSync, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs';
import path from 'node:path';
import type { FunctionManifest } from '../app/control.ts';
import { EXIT, Failure } from './failure.ts';

/** Content of a `pie.json`. This file checks only the member `name`; a deploy checks the rest. */
export type Manifest = FunctionManifest & { readonly main?: string };

/** A function on disk. */
export interface FunctionSource {
  readonly manifest: Manifest;
  /** Path of the source's entry file, or of what a build has made. A core Wasm module counts as source: the build wraps it. */
  readonly entry: string;
  /** `script` and `component` are results of a build. */
  readonly kind: 'source' | 'script' | 'component';
}

const NATIVE = ['.c', '.rs', '.wasm'];
const SOURCES = ['.ts', '.js', '.mts', '.mjs', '.c', '.rs'];
/** The first bytes of a core Wasm module: the magic number, and version 1. */
const CORE_MODULE_START = Buffer.from('\0asm\x01\0\0\0', 'latin1');
const ENTRIES = ['index.ts', 'index.js', 'main.ts', 'main.js'];

/**
 * Finds the function to deploy for `target`: a folder, a source file, a script or a component. A folder's manifest is its
 * pie.json. A file's manifest is the pie.json beside it if that names the file as its `main`. Without a manifest, the
 * name of the folder or file becomes the function's name.
 *
 * @param name replaces the name of the function
 */
export function findFunction(target: string, name: string | undefined): FunctionSource {
  const full = path.resolve(target);
  if (!existsSync(full)) {
    throw new Failure(`${target} does not exist.`, {
      advice: 'Name a folder with a pie.json, a .ts, .js, .c or .rs file, a .pie script, or a .wasm component.',
    });
  }
  if (statSync(full).isDirectory()) {
    const manifest = readManifest(path.join(full, 'pie.json'), true) ?? { name: functionName(path.basename(full)) };
    return { ...describe(path.join(full, entryOf(full, target, manifest))), manifest: withName(manifest, name) };
  }
  const siblingManifest = readManifest(path.join(path.dirname(full), 'pie.json'), false);
  const namesThisFile =
    siblingManifest && path.resolve(path.dirname(full), String(siblingManifest.main ?? '')) === full;
  const manifest = namesThisFile ? siblingManifest : { name: functionName(path.basename(full, path.extname(full))) };
  return { ...describe(full), manifest: withName(manifest, name) };
}

function entryOf(folder: string, target: string, manifest: Manifest): string {
  if (typeof manifest.main === 'string') {
    if (existsSync(path.join(folder, manifest.main))) return manifest.main;
    throw new Failure(`${path.join(target, manifest.main)} does not exist.`, {
      why: 'pie.json names it as its "main".',
      advice: 'Correct "main", or create the file.',
    });
  }
  const entryFile = ENTRIES.find((entry) => existsSync(path.join(folder, entry)));
  if (entryFile) return entryFile;
  throw new Failure(`${target} has no entry file.`, {
    why: `There is none of ${ENTRIES.join(', ')}, and no pie.json names another as "main".`,
    advice: 'Create index.ts, or name the file itself.',
  });
}

function describe(entry: string): { entry: string; kind: FunctionSource['kind'] } {
  const extension = path.extname(entry);
  if (extension === '.wasm') return { entry, kind: isCoreModule(entry) ? 'source' : 'component' };
  if (extension === '.pie') return { entry, kind: 'script' };
  if (SOURCES.includes(extension)) return { entry, kind: 'source' };
  throw new Failure(`${path.basename(entry)} cannot be deployed.`, {
    why: `Its extension is "${extension}".`,
    advice: `Deploy a folder, a source file (${SOURCES.join(', ')}), a script (.pie) or a component (.wasm).`,
  });
}

/** True for a source whose build makes a component: C, Rust or a core Wasm module. A build makes a script of every other source. */
export const isNative = (entry: string): boolean => NATIVE.includes(path.extname(entry));

/** True for a WebAssembly module that is not a component: the build wraps it into one. */
function isCoreModule(file: string): boolean {
  const start = Buffer.alloc(CORE_MODULE_START.length);
  const descriptor = openSync(file, 'r');
  try {
    readSync(descriptor, start);
  } finally {
    closeSync(descriptor);
  }
  return start.equals(CORE_MODULE_START);
}

function readManifest(file: string, mustBeValid: boolean): Manifest | null {
  if (!existsSync(file)) return null;
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof value === 'object' && value !== null && 'name' in value && typeof value.name === 'string') {
      return value as Manifest;
    }
    throw new Error('it is not an object with a "name"');
  } catch (cause) {
    // A broken manifest beside a single file may belong to another function.
    if (!mustBeValid) return null;
    throw new Failure(`${file} is not a manifest.`, {
      exitCode: EXIT.usage,
      code: 'invalid-manifest',
      why: cause instanceof Error ? cause.message : String(cause),
      advice: 'Write at least {"name": "my-function"}; functions/text-completion/pie.json shows more.',
    });
  }
}

function withName(manifest: Manifest, name: string | undefined): Manifest {
  return name === undefined ? manifest : { ...manifest, name };
}

/** Derives a function's name from a file's name: lower case, digits and dashes. */
function functionName(text: string): string {
  return (
    text
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '-')
      .replace(/^-+|-+$/g, '') || 'function'
  );
}
