import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ChildLog } from './child-log.ts';

test('the log counts all missing lines, also when its note about them fails', async (t) => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-log-'));
  const file = path.join(directory, 'full.log');
  try {
    symlinkSync('/dev/full', file);
    const failed = Promise.withResolvers<string>();
    const log = new ChildLog(file, failed.resolve);
    for (const line of ['0', '1', '2']) log.write(`${line}\n`);
    assert.match(await failed.promise, /ENOSPC/);
    nowMs = 6000;
    log.write('3\n');
    // The file fails again, and the log does not report that a second time.
    await sleep(100);
    rmSync(file);
    nowMs = 12_000;
    log.write('4\n');
    await log.end();
    assert.match(readFileSync(file, 'utf8'), /^\S+ \(4 lines are missing here: ENOSPC.*\)\n4\n$/);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
