import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { it } from 'node:test';
import { trimComponentCache } from './builder.ts';

const HOUR_MS = 3_600_000;

it('trimComponentCache removes the components that were used longest ago until the rest fit', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-components-'));
  const now = Date.now();
  const put = (name: string, bytes: number, ageMs: number) => {
    writeFileSync(path.join(folder, name), new Uint8Array(bytes));
    utimesSync(path.join(folder, name), new Date(now - ageMs), new Date(now - ageMs));
  };
  try {
    put('a.wasm', 400, 3 * HOUR_MS);
    put('b.wasm', 400, 5 * HOUR_MS);
    put('c.wasm', 400, HOUR_MS);
    mkdirSync(path.join(folder, '.tmp-1-of-another-build'));
    trimComponentCache(folder, 1200, now);
    assert.equal(readdirSync(folder).length, 4, 'all components fit');
    trimComponentCache(folder, 1000, now);
    assert.deepEqual(readdirSync(folder).sort(), ['.tmp-1-of-another-build', 'a.wasm', 'c.wasm']);
    put('new.wasm', 5000, 0);
    trimComponentCache(folder, 1000, now);
    assert.deepEqual(readdirSync(folder).sort(), ['.tmp-1-of-another-build', 'new.wasm'], 'a component in use stays');
    trimComponentCache(path.join(folder, 'nowhere'), 1000, now);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
