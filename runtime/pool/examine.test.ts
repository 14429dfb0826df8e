import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { it } from 'node:test';
import type { Artifact } from '../build/index.ts';
import type { Plan } from '../lowering/plan.ts';
import { keepPlan } from './examine.ts';

it('a plan that cannot be written leaves no temporary file', async (t) => {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-examine-'));
  t.after(() => rm(directory, { recursive: true }));
  // A folder at the path of the plan makes the rename fail.
  await mkdir(path.join(directory, 'plan.json'));
  await keepPlan({ directory } as Artifact, {} as Plan);
  assert.deepEqual(await readdir(directory), ['plan.json']);
});
