import { createHash } from 'node:crypto';
import { world } from './generated/world.ts';

/** Identifies this release's contract: a runtime with another contract may lack calls that components of this release import. */
export const CONTRACT = createHash('sha256').update(JSON.stringify(world)).digest('hex').slice(0, 16);
