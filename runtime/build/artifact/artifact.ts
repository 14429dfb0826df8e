import type { ArtifactMeta } from './meta-schema.ts';

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
export const GLUE_FILE = 'app.js';
/** Tells Node that the glue is an ECMAScript module. */
export const TYPE_FILE = 'package.json';
export const TYPE_TEXT = '{"type":"module"}\n';
