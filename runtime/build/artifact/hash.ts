import { createHash } from 'node:crypto';
import { toolchain } from '../toolchain.ts';
import type { ArtifactOptions } from './artifact.ts';

export const sha256 = (data: Uint8Array | string): string => createHash('sha256').update(data).digest('hex');

/** An artifact's name: everything that went into it. Takes the component's own hash, so that the component need not be at hand. */
export const artifactHashOf = (componentHash: string, { memoryPages }: ArtifactOptions): string =>
  sha256(JSON.stringify([componentHash, memoryPages, toolchain()]));
