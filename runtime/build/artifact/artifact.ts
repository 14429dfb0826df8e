import type { CoreModule } from './core-modules.ts';

/** Options of an artifact, which are part of its hash. */
export interface ArtifactOptions {
  /** Maximum pages of 64 KiB that all memories of the component can grow to together. */
  readonly memoryPages: number;
}

/** `artifact.json`. */
export interface ArtifactMeta {
  readonly hash: string;
  readonly component: { readonly hash: string; readonly bytes: number };
  readonly options: ArtifactOptions;
  /** Versions of all tools that made the artifact. */
  readonly toolchain: Readonly<Record<string, string>>;
  /** Interfaces that the component imports, such as `pie:inferlet/queue@0.1.0`. */
  readonly imports: readonly string[];
  readonly coreModules: readonly CoreModule[];
  readonly glue: { readonly file: string; readonly bytes: number; readonly rewrites: readonly string[] };
  readonly timings: ArtifactTimings;
  readonly createdAt: string;
}

/** Milliseconds of each step, in the child process. */
export interface ArtifactTimings {
  readonly checkMs: number;
  readonly transpileMs: number;
  readonly meterMs: number;
  readonly writeMs: number;
}

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
