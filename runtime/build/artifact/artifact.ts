import { createHash } from 'node:crypto';
import { BuildError } from '../outcome.ts';
import { toolchain } from '../toolchain.ts';
import { wasmKind } from '../wasm/binary.ts';
import type { ArtifactMeta, ArtifactOptions } from './meta-schema.ts';

/** A built function, as a runtime loads it. */
export interface Artifact {
  readonly hash: string;
  readonly directory: string;
  /** Path of app.js, which exports `instantiate(getCoreModule, imports, instantiateCore?)`; getCoreModule must not return a promise. */
  readonly glue: string;
  /** Files of the core modules, in the directory. */
  readonly coreModules: readonly string[];
  readonly meta: ArtifactMeta;
}

export const META_FILE = 'artifact.json';
/** The plan, which an examination adds to an artifact. */
export const PLAN_FILE = 'plan.json';
export const GLUE_FILE = 'app.js';
/** Tells Node that the glue is an ECMAScript module. */
export const TYPE_FILE = 'package.json';
export const TYPE_TEXT = '{"type":"module"}\n';

/** Memory of an instance by default: 64 MiB, in pages of 64 KiB. */
export const DEFAULT_MEMORY_PAGES = 1024;
/** Pages of a memory of 4 GiB, the largest with addresses of 32 bits. */
export const MAX_MEMORY_PAGES = 65_536;

/** Largest accepted component, in bytes. */
export const MAX_COMPONENT_BYTES = 64 * 2 ** 20;

/** Checks that bytes are a component, and not too large; cheap enough for the parent process. @throws BuildError */
export function checkKind(bytes: Uint8Array): void {
  if (bytes.length > MAX_COMPONENT_BYTES) {
    throw new BuildError(
      'component-too-large',
      `The component has ${(bytes.length / 2 ** 20).toFixed(1)} MiB; ${MAX_COMPONENT_BYTES / 2 ** 20} MiB is the limit.`,
      'Leave debug information out (release build, wasm-strip) and move large data into the input or a store.',
    );
  }
  const kind = wasmKind(bytes);
  if (kind === 'other') {
    throw new BuildError(
      'not-wasm',
      `The ${bytes.length} bytes are not WebAssembly: they do not start with "\\0asm".`,
      'Deploy a .wasm component, or a .ts or .js source file, which is compiled for you.',
    );
  }
  if (kind === 'module') {
    throw new BuildError(
      'core-module',
      'This is a core Wasm module, not a component.',
      'Wrap it: `wasm-tools component embed wit/ --world inferlet` and then `wasm-tools component new`.',
    );
  }
}

export const sha256 = (data: Uint8Array | string): string => createHash('sha256').update(data).digest('hex');

/** An artifact's name: the hash of all its inputs. Takes the component's hash, so that callers need not read the component. */
export const artifactHashOf = (componentHash: string, { memoryPages }: ArtifactOptions): string =>
  sha256(JSON.stringify([componentHash, memoryPages, toolchain()]));
