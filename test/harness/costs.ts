/**
 * `npm run test:costs [FILE]`: lists the test files that take the most processor time, and what only they assert. It runs `npm test` and
 * `npm run test:ci` first, or takes the costs from a FILE that such a run has written because `PIE_TEST_COSTS` named it.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from './platform.ts';

/** Number of listed files. */
const LISTED = 30;

interface Cost {
  readonly file: string;
  readonly cpuSeconds: number;
  readonly ms: number;
}

/** What no other test asserts, for the dearest test files. Write a line for each file that the script lists without one. */
export const ONLY_HERE: Readonly<Record<string, string>> = {};

/** Runs all tests. Returns the costs of their files. */
function measured(): readonly Cost[] {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-costs-'));
  try {
    const file = path.join(folder, 'costs');
    const command = [path.join(ROOT, 'infra/bootstrap/testing/test.js'), '--all'];
    const { status } = spawnSync(process.execPath, command, {
      env: { ...process.env, PIE_TEST_COSTS: file },
      stdio: 'inherit',
    });
    if (status !== 0) console.error('\nNot all tests passed: the costs below are those of the files that ran.');
    return existsSync(file) ? costsIn(file) : [];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The costs in a file that `infra/bootstrap/testing/report.ts` has written. A file of tests that ran twice counts twice. */
function costsIn(file: string): readonly Cost[] {
  const sums = new Map<string, Cost>();
  for (const line of readFileSync(file, 'utf8').trim().split('\n')) {
    const { file, cpuSeconds, ms } = JSON.parse(line) as Cost;
    const known = sums.get(file);
    sums.set(file, { file, cpuSeconds: cpuSeconds + (known?.cpuSeconds ?? 0), ms: ms + (known?.ms ?? 0) });
  }
  return [...sums.values()].sort((a, b) => b.cpuSeconds - a.cpuSeconds);
}

const seconds = (value: number): string => `${value.toFixed(1)} s`.padStart(10);

const args = process.argv.slice(2);
const costs = args[0] === undefined ? measured() : costsIn(args[0]);
const total = costs.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
console.log(
  `\n${costs.length} test files take ${total.toFixed(0)} s of processor time. The ${LISTED} dearest, and what only they assert:\n`,
);
for (const { file, cpuSeconds, ms } of costs.slice(0, LISTED))
  console.log(
    `${seconds(cpuSeconds)}${seconds(ms / 1000)}  ${file}\n${' '.repeat(22)}${ONLY_HERE[file] ?? 'not described yet: see ONLY_HERE'}`,
  );
