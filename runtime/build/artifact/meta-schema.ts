import { z } from 'zod';
import type { ArtifactMeta } from './artifact.ts';
import { MAX_MEMORY_PAGES, MODULE_ROLES } from './defaults.ts';

const sha256Hex = z.string().regex(/^[0-9a-f]{64}$/);
/** Name of a file in the artifact's folder; it cannot be a path that leads out of the folder. */
const fileName = z.string().regex(/^[A-Za-z0-9][\w.-]{0,99}$/);
const milliseconds = z.number().min(0);
const bytes = z.int().min(0);
const pages = z.int().min(0).max(MAX_MEMORY_PAGES);

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
        file: fileName,
        hash: sha256Hex,
        bytes,
        checks: bytes,
        role: z.enum(MODULE_ROLES),
        memoryPages: z.array(pages).max(100),
      }),
    )
    .max(1000),
  glue: z.strictObject({ file: fileName, bytes, rewrites: z.array(z.string().max(100)).max(100) }),
  timings: z.strictObject({
    checkMs: milliseconds,
    transpileMs: milliseconds,
    meterMs: milliseconds,
    writeMs: milliseconds,
  }),
  createdAt: z.iso.datetime(),
});
