import { z } from 'zod';
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

const sha256Hex = z.string().regex(/^[0-9a-f]{64}$/);
/** Name of a file in the artifact's folder; it cannot be a path that leads out of the folder. */
const fileName = z.string().regex(/^[A-Za-z0-9][\w.-]{0,99}$/);
const milliseconds = z.number().min(0);
const bytes = z.int().min(0);
const pages = z.int().min(0).max(65_536);

/** Validates an artifact's description: a process with untrusted input wrote it. */
export const artifactMetaSchema: z.ZodType<ArtifactMeta> = z.strictObject({
  hash: sha256Hex,
  component: z.strictObject({ hash: sha256Hex, bytes }),
  options: z.strictObject({ memoryPages: pages }),
  toolchain: z.record(z.string().max(100), z.string().max(200)),
  imports: z.array(z.string().max(200)).max(1000),
  coreModules: z
    .array(
      z.strictObject({
        ...{ file: fileName, hash: sha256Hex, bytes, checks: bytes },
        role: z.enum(['program', 'linkage', 'helper']),
        memoryPages: z.array(pages).max(100),
      }),
    )
    .max(1000),
  glue: z.strictObject({ file: fileName, bytes, rewrites: z.array(z.string().max(100)).max(100) }),
  timings: z.strictObject({
    ...{ checkMs: milliseconds, transpileMs: milliseconds, meterMs: milliseconds, writeMs: milliseconds },
  }),
  createdAt: z.iso.datetime(),
});
