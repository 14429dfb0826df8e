import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { CollectedLog, failingLog } from '#scheduler/testing/log.ts';
import { ServingMark } from './serving-mark.ts';

test('the mark exists while all processes are ready, from the end of the start to the drain', () => {
  const runDirectory = mkdtempSync(path.join(os.tmpdir(), 'pie-serving-'));
  const file = path.join(runDirectory, 'serving');
  try {
    writeFileSync(file, '');
    const mark = new ServingMark({ runDirectory }, failingLog);
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
    assert.ok(!existsSync(file), 'after the drain has begun, the mark does not return');
  } finally {
    rmSync(runDirectory, { recursive: true });
  }
});

test('a mark that cannot be written does not end the supervisor', () => {
  const runDirectory = mkdtempSync(path.join(os.tmpdir(), 'pie-serving-'));
  const log = new CollectedLog();
  const mark = new ServingMark({ runDirectory }, log);
  rmSync(runDirectory, { recursive: true });
  mark.begin();
  assert.match(String(log.errors), /ENOENT.*serving/);
});
