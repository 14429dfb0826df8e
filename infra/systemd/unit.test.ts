import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../config.ts';
import { ROOT } from '../install.ts';
import { stopBoundMs } from '../testing/stop-bound.ts';
import { assertKnownVariables } from '../testing/variables.ts';

const UNIT = readFileSync(path.join(ROOT, 'infra/systemd/pie.service'), 'utf8');
const VERIFY = ['systemd-analyze', 'verify', '--man=no'] as const;
const hasSystemd = spawnSync(VERIFY[0], ['--version']).status === 0;

test('the unit sets known variables, runs a program of the clone and gives it time for the drain', () => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-unit-'));
  try {
    const variableNames = [...UNIT.matchAll(/\b(PIE_\w+)/g)].map(([, name = '']) => name);
    assertKnownVariables(variableNames);
    assert.match(
      UNIT,
      /^ExecStart=\/opt\/pie\/node_modules\/\.bin\/node \/opt\/pie\/gateway\/cli\/bin\.js up --no-story$/m,
    );
    const seconds = Number(/^TimeoutStopSec=(\d+)$/m.exec(UNIT)?.[1]);
    assert.ok(seconds * 1000 > stopBoundMs(loadConfig({ PIE_HOME: home })));
  } finally {
    rmSync(home, { recursive: true });
  }
});

test('systemd accepts the unit', { skip: !hasSystemd && 'systemd-analyze is not installed' }, () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-unit-'));
  try {
    const file = path.join(folder, 'pie.service');
    // systemd also checks that the program exists.
    writeFileSync(file, UNIT.replaceAll('/opt/pie', ROOT));
    const [program, ...args] = VERIFY;
    const { stderr } = spawnSync(program, [...args, file], { encoding: 'utf8' });
    // systemd-analyze also reports faults of the units that this machine has.
    assert.deepEqual(
      stderr.split('\n').filter((line) => line.includes('pie.service')),
      [],
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
