import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { toolchain } from '../build/toolchain.ts';

/** All clones of one user's repository share the build results of their tests, in a folder for each set of build tools. */
const CACHE = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'pie', 'tests');
/** A folder is removed when no test has used its tools for this long. */
const KEPT_MS = 3 * 24 * 3600 * 1000;
/** Source text of the code that makes the artifacts' plans: a change of this code makes other plans. */
const PLANNER = ['lowering/plan.ts', 'lowering/record.ts', 'pool/measure.ts'].map((file) =>
  readFileSync(new URL(`../${file}`, import.meta.url), 'utf8'),
);
const TOOLS = createHash('sha256')
  .update(JSON.stringify([toolchain(), PLANNER]))
  .digest('hex')
  .slice(0, 16);

/** Components that tests built, by source. */
export const TEST_COMPONENTS = join(CACHE, TOOLS);
/** Artifacts of test components, also those of whole platforms. */
export const TEST_ARTIFACTS = join(TEST_COMPONENTS, 'artifacts');

mkdirSync(TEST_ARTIFACTS, { recursive: true });
const now = new Date();
utimesSync(TEST_COMPONENTS, now, now);
for (const name of readdirSync(CACHE)) {
  const folder = join(CACHE, name);
  // Another test process may remove the folder at the same time.
  const usedAt = statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? now.getTime();
  if (usedAt < now.getTime() - KEPT_MS) rmSync(folder, { recursive: true, force: true });
}
