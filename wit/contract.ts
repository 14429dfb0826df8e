import { createHash } from 'node:crypto';
import { world } from './generated/world.ts';

/** Text that names this release's contract: a runtime with another one may lack calls that components of this release import. */
export const CONTRACT = createHash('sha256').update(JSON.stringify(world)).digest('hex').slice(0, 16);
