import { createHash } from 'node:crypto';
import { toolchain } from '../toolchain.ts';
import type { ArtifactOptions } from './meta-schema.ts';

export const sha256 = (data: Uint8Array | string): string => createHash('sha256').update(data).digest('hex');

/** An artifact's name: the hash of all its inputs. Takes the component's hash, so that callers need not read the component. */
export const artifactHashOf = (componentHash: string, { memoryPages }: ArtifactOptions): string =>
  sha256(JSON.stringify([componentHash, memoryPages, toolchain()]));
