import { createHash } from 'node:crypto';
import { toolchain } from '../toolchain.ts';
import type { ArtifactOptions } from './artifact.ts';

export const sha256 = (data: Uint8Array | string): string => createHash('sha256').update(data).digest('hex');

/** An artifact's name: everything that went into it. */
export const artifactHash = (component: Uint8Array, options: ArtifactOptions): string =>
  sha256(JSON.stringify([sha256(component), options.memoryPages, toolchain()]));
