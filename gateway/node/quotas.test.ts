import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';

function quotasOf(home: string, lines: readonly string[]) {
  writeFileSync(path.join(home, 'pie.toml'), `[quotas]\n${lines.join('\n')}\n`);
  return loadConfig({ PIE_HOME: home }).quotas;
}

test('pie.toml can set every quota except waiting-invocations; it is refused with an unknown quota or a wrong limit', (t) => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-quotas-'));
  t.after(() => rmSync(home, { recursive: true, force: true }));
  const names = QUOTA_NAMES.filter((name) => name !== 'waiting-invocations');
  const lines = names.map((name, i) => `${name.replaceAll('-', '_')} = ${i}`);
  assert.deepEqual(quotasOf(home, lines), Object.fromEntries(names.map((name, i) => [name, i])));
  assert.deepEqual(quotasOf(home, []), {});
  for (const wrong of ['requests_per_day = 1.5', 'requests_per_day = -1', 'dreams_per_day = 1', 'kv_pages = "1"']) {
    assert.throws(() => quotasOf(home, [wrong]), /quotas/);
  }
});
