import type { CoreModule } from './core-modules.ts';

/** How an artifact is made; part of its hash. */
export interface ArtifactOptions {
  /** What all memories of the component can grow to, in pages of 64 KiB. */
  readonly memoryPages: number;
}

/** `artifact.json`. */
export interface ArtifactMeta {
  readonly hash: string;
  readonly component: { readonly hash: string; readonly bytes: number };
  readonly options: ArtifactOptions;
  /** Versions of everything that had a part in it. */
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

/** What a runtime needs to load a function. */
export interface Artifact {
  readonly hash: string;
  readonly directory: string;
  /** Path of app.js, which exports `instantiate(getCoreModule, imports, instantiateCore?)`; getCoreModule must not answer a promise. */
  readonly glue: string;
  /** Files of the core modules, in the directory. */
  readonly coreModules: readonly string[];
  readonly meta: ArtifactMeta;
}

export const META_FILE = 'artifact.json';
export const GLUE_FILE = 'app.js';
