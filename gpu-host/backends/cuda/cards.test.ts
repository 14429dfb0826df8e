import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { testAddon } from '../testing/cuda.ts';
import { loadAddon } from './addon.ts';
import type { CardsAnswer } from './cards.ts';

function ask(addon: string): CardsAnswer {
  const env = { ...process.env, PIE_CUDA_ADDON: addon };
  return JSON.parse(execFileSync(process.execPath, [join(import.meta.dirname, 'cards.ts')], { env, encoding: 'utf8' }));
}

test('cards.ts reports the cards that an addon sees, and a missing or broken addon', async () => {
  const addon = await testAddon();
  const { emulated } = loadAddon(addon);
  assert.deepEqual(ask(addon), { kind: 'cards', emulated, cards: loadAddon(addon).devices() });
  const directory = mkdtempSync(join(tmpdir(), 'pie-cards-'));
  try {
    const file = join(directory, 'pie-cuda.node');
    assert.deepEqual(ask(file), { kind: 'no-addon', file, named: true });
    writeFileSync(file, 'no library');
    const { why, ...rest } = ask(file) as Extract<CardsAnswer, { kind: 'no-addon' }>;
    assert.deepEqual(rest, { kind: 'no-addon', file, named: true });
    assert.match(why ?? '', /pie-cuda\.node/);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
