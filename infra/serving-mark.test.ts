import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { mock, test } from 'node:test';
import { ServingMark } from './serving-mark.ts';

test('the mark exists while all processes are ready, from the end of the start to the drain', () => {
  const runDirectory = mkdtempSync(path.join(os.tmpdir(), 'pie-serving-'));
  const file = path.join(runDirectory, 'serving');
  try {
    writeFileSync(file, '');
    const mark = new ServingMark({ runDirectory });
    assert.ok(!existsSync(file), 'the mark of a killed supervisor is removed');
    const ready = (name: string) => mark.note({ kind: 'ready', name, pid: 1, afterMs: 1, restarted: true });
    const died = (name: string) => mark.note({ kind: 'died', name, why: 'exit code 1', restartInMs: 0, tail: '' });
    ready('gateway');
    assert.ok(!existsSync(file), 'the start is not over');
    mark.begin();
    assert.ok(existsSync(file));
    died('gateway');
    died('runtime-1');
    ready('gateway');
    assert.ok(!existsSync(file), 'one process is still away');
    ready('runtime-1');
    assert.ok(existsSync(file));
    mark.end();
    ready('gateway');
    assert.ok(!existsSync(file), 'a drain has no end but the exit');
  } finally {
    rmSync(runDirectory, { recursive: true });
  }
});

test('a mark that cannot be written does not end the supervisor', () => {
  const runDirectory = mkdtempSync(path.join(os.tmpdir(), 'pie-serving-'));
  const mark = new ServingMark({ runDirectory });
  rmSync(runDirectory, { recursive: true });
  const { mock: printed } = mock.method(console, 'error', () => undefined);
  try {
    mark.begin();
    assert.match(String(printed.calls[0]?.arguments[0]), /serving cannot be changed/);
  } finally {
    printed.restore();
  }
});
