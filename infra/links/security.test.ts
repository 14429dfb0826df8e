import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { mock, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { newCertificate, openLinkSecurity, writeCertificate } from './security.ts';

test('an unreadable list of machines is logged once a minute, and the last readable list stays in force', async () => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-security-'));
  const list = path.join(home, 'peers.json');
  writeCertificate(home, await newCertificate('east', Date.now()));
  writeFileSync(list, '{"AB":"west"}');
  mock.timers.enable({ apis: ['setInterval'] });
  const log = new CollectedLog();
  try {
    const security = openLinkSecurity({ home, runDirectory: home }, log);
    writeFileSync(list, '{');
    // Ten reads fail within two seconds; only the first failure is logged.
    mock.timers.tick(10 * 200);
    assert.equal(log.records.length, 1);
    assert.equal(security?.machineOf('AB'), 'west');
  } finally {
    mock.timers.reset();
    rmSync(home, { recursive: true });
  }
});
