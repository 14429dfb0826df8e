import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

const CHARACTERS = 4_000_000;

test('writeLine writes megabytes in full to a late reader, even if the process exits right after it', async () => {
  const module = new URL('./write-line.ts', import.meta.url).href;
  const script = `
    const { writeLine } = await import(${JSON.stringify(module)});
    console.error('begins');
    await writeLine(process.stdout, 'x'.repeat(${CHARACTERS}));
    process.exit(0);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'pipe'] });
  await once(child.stderr, 'data');
  await sleep(200);
  assert.equal((await text(child.stdout)).length, CHARACTERS + 1);
});
