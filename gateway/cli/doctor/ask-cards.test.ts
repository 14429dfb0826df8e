import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { askCards } from './ask-cards.ts';

let directory: string;
before(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'pie-ask-'));
});
after(() => rmSync(directory, { recursive: true, force: true }));

function program(text: string): string {
  const file = path.join(directory, 'program.mjs');
  writeFileSync(file, text);
  return file;
}

test('askCards survives a driver that crashes, fails or hangs', async () => {
  const crashed = await askCards(60_000, program('process.kill(process.pid, "SIGSEGV"); await new Promise(() => {})'));
  assert.deepEqual(crashed, { kind: 'broken', why: 'it ended with SIGSEGV' });
  const threw = await askCards(60_000, program('throw new RangeError("the driver said 999")'));
  assert.deepEqual(threw, { kind: 'broken', why: 'it ended with code 1: RangeError: the driver said 999' });
  const hangs = await askCards(300, program('process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'));
  assert.deepEqual(hangs, { kind: 'broken', why: 'it did not answer within 0.3 s' });
});
