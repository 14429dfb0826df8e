import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { STEPS } from './steps.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Test files that are not the repository's own: packages, and projects that tests copy or generate. */
const exclude = (file: string) => /(^|\/)(node_modules|fixtures|templates|dist)(\/|$)/.test(file);
const ALL = STEPS.flatMap((step) => [step, ...(step.beside ?? [])]);
const found = (pattern: string): string[] => globSync(pattern, { cwd: ROOT, exclude });

test('every test file is run by exactly one step', () => {
  const runBy = new Map<string, string[]>(found('**/*.test.{ts,js,mjs}').map((file) => [file, []]));
  for (const { title, files = [] } of ALL)
    for (const file of new Set(files.flatMap(found))) runBy.set(file, [...(runBy.get(file) ?? []), title]);
  const wrong = [...runBy].filter(([, titles]) => titles.length !== 1);
  assert.deepEqual(wrong, []);
  assert.ok(runBy.size > 300, `${runBy.size} test files`);
});

test('every pattern of a step matches a file', () => {
  for (const { title, files = [] } of ALL)
    for (const pattern of files) assert.notDeepEqual(found(pattern), [], `${title}: ${pattern}`);
});
