import assert from 'node:assert/strict';
import fs, { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ChildLog } from './child-log.ts';

test('the note about missing lines counts all of them, even if an earlier note could not be written', async (t) => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const { mock: opened } = t.mock.method(fs, 'openSync');
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-log-'));
  const file = path.join(directory, 'full.log');
  try {
    symlinkSync('/dev/full', file);
    const failed = Promise.withResolvers<string>();
    const reports: string[] = [];
    const log = new ChildLog(file, (why) => {
      reports.push(why);
      failed.resolve(why);
    });
    for (const line of ['0', '1', '2']) log.write(`${line}\n`);
    assert.match(await failed.promise, /ENOSPC/);
    await log.end();
    nowMs = 4999;
    log.write('3\n');
    await sleep(1);
    assert.equal(opened.callCount(), 1, 'the log waits before it opens the file again');
    nowMs = 6000;
    log.write('4\n');
    await log.end(); // The file has failed again, and with it the note.
    rmSync(file);
    nowMs = 12_000;
    log.write('5\n');
    log.write('6\n');
    await log.end();
    // The lines 0 to 4 are missing.
    assert.match(readFileSync(file, 'utf8'), /^\S+ \(5 lines are missing here: ENOSPC.*\)\n5\n6\n$/);
    assert.equal(opened.callCount(), 3);
    assert.equal(reports.length, 1, 'the second failure is not reported again');
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('a log takes a bounded part of the disk: full files are renamed, the oldest is removed, and no line is cut or lost', async () => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-log-'));
  const file = path.join(directory, 'busy.log');
  const report = (why: string) => assert.fail(why);
  const line = (number: number) => `${String(number).padStart(9, '0')}\n`;
  try {
    // Ten lines fill a file. The second log begins with the last file of the first.
    for (const [from, to] of [
      [0, 25],
      [25, 64],
    ] as const) {
      const log = new ChildLog(file, report, 100);
      for (let number = from; number < to; number++) log.write(line(number));
      await log.end();
    }
    assert.deepEqual(readdirSync(directory).sort(), ['busy.log', 'busy.log.1', 'busy.log.2', 'busy.log.3']);
    const texts = ['busy.log.3', 'busy.log.2', 'busy.log.1', 'busy.log'].map((name) =>
      readFileSync(path.join(directory, name), 'utf8'),
    );
    assert.equal(texts.join(''), Array.from({ length: 34 }, (_, i) => line(30 + i)).join(''));
  } finally {
    rmSync(directory, { recursive: true });
  }
});
