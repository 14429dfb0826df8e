import { z } from 'zod';
import { MAX_MEMORY_PAGES } from './artifact.ts';

const sha256Hex = z.string().regex(/^[0-9a-f]{64}$/);
/** Name of a file in the artifact's folder; it cannot be a path that leads out of the folder. */
const fileName = z.string().regex(/^[A-Za-z0-9][\w.-]{0,99}$/);
const milliseconds = z.number().min(0);
const bytes = z.int().min(0);
const pages = z.int().min(0).max(MAX_MEMORY_PAGES);

const optionsSchema = z
  .strictObject({
    /** Maximum pages of 64 KiB that all memories of the component can grow to together. */
    memoryPages: pages,
  })
  .readonly();

const coreModuleSchema = z
  .strictObject({
    /** Name that the glue asks `getCoreModule` for. */
    file: fileName,
    /** sha256 of the module's bytes: equal modules of different artifacts (the JavaScript engine) can share one `WebAssembly.Module`. */
    hash: sha256Hex,
    bytes,
    /** Number of inserted fuel checks. */
    checks: z.int().min(0),
    /** `program` has fuel checks and exports `pie_fuel` and `pie_yield`; `linkage` only connects other modules; `helper` comes from jco. */
    role: z.enum(['program', 'linkage', 'helper']),
    /** Maximum of each memory that the module defines, in pages of 64 KiB. */
    memoryPages: z.array(pages).max(100).readonly(),
  })
  .readonly();

/** Validates an artifact's description: a process with untrusted input wrote it. */
export const artifactMetaSchema = z
  .strictObject({
    hash: sha256Hex,
    component: z.strictObject({ hash: sha256Hex, bytes }).readonly(),
    options: optionsSchema,
    /** Versions of all tools that made the artifact. */
    toolchain: z.record(z.string().max(100), z.string().max(200)).readonly(),
    /** Interfaces that the component imports, such as `pie:inferlet/queue@0.1.0`. */
    imports: z.array(z.string().max(200)).max(1000).readonly(),
    coreModules: z.array(coreModuleSchema).max(1000).readonly(),
    glue: z
      .strictObject({ file: fileName, bytes, rewrites: z.array(z.string().max(100)).max(100).readonly() })
      .readonly(),
    /** Time of each step, in the child process. */
    timings: z
      .strictObject({
        checkMs: milliseconds,
        transpileMs: milliseconds,
        meterMs: milliseconds,
        writeMs: milliseconds,
      })
      .readonly(),
    createdAt: z.iso.datetime(),
  })
  .readonly();

/** `artifact.json`. */
export type ArtifactMeta = z.output<typeof artifactMetaSchema>;
/** Options of a build; they are part of the artifact's hash. */
export type ArtifactOptions = z.output<typeof optionsSchema>;
/** One core module of an artifact. */
export type CoreModule = z.output<typeof coreModuleSchema>;
