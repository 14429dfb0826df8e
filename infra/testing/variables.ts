import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../install.ts';

/** Files that read the variables of the environment which operators set. */
const READERS = ['infra/config.ts', 'infra/machine-settings.ts', 'scheduler/secrets/master-keys.ts'];

/** Asserts that the platform reads each variable. */
export function assertKnownVariables(names: readonly string[]): void {
  const code = READERS.map((file) => readFileSync(path.join(ROOT, file), 'utf8')).join('\n');
  for (const name of names) assert.match(code, new RegExp(`\\b${name}\\b`), `${name} has no effect`);
}
