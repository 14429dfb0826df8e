import assert from 'node:assert/strict';
import { environmentSchema } from '../config.ts';

/** Variables that operators set: those of the configuration, and one that only the scheduler reads. */
const KNOWN: readonly string[] = [...Object.keys(environmentSchema.shape), 'PIE_MASTER_KEY'];

/** Asserts that the platform reads each variable. */
export function assertKnownVariables(names: readonly string[]): void {
  for (const name of names) assert.ok(KNOWN.includes(name), `${name} has no effect`);
}
