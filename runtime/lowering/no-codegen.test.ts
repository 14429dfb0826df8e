import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { testArtifact, testComponent, testProgram } from '../testing/components.ts';

const MAIN = fileURLToPath(new URL('../testing/run-planned.ts', import.meta.url));

it('a process that may not generate code from strings runs every call of the contract', async () => {
  const source = await readFile(new URL('./fixtures/everything.js', import.meta.url), 'utf8');
  const { artifact } = await testProgram(await testArtifact(await testComponent(source)));
  const flags = ['--disallow-code-generation-from-strings', '--disable-warning=ExperimentalWarning'];
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, MAIN, artifact.directory, '4']);
  const { ending, calls, refused } = JSON.parse(stdout) as { ending: unknown; calls: number; refused: boolean };
  assert.deepEqual(ending, { kind: 'returned', ok: true, text: '{"rounds":4}' });
  assert.ok(calls > 100, `${calls} calls`);
  // V8 did forbid the generation of code in that process.
  assert.equal(refused, true);
});
