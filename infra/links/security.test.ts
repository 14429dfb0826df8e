import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { mock, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { newCertificate, writeCertificate } from './certificate.ts';
import { openLinkSecurity } from './security.ts';

test('a list of machines that cannot be read is logged once a minute, and the last readable one holds', async () => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-security-'));
  const list = path.join(home, 'peers.json');
  writeCertificate(home, await newCertificate('east', Date.now()));
  writeFileSync(list, '{"AB":"west"}');
  mock.timers.enable({ apis: ['setInterval'] });
  const log = new CollectedLog();
  try {
    const security = openLinkSecurity({ home, runDirectory: home }, log);
    writeFileSync(list, '{');
    // Ten failed reads, and the first is logged.
    mock.timers.tick(10 * 200);
    assert.equal(log.records.length, 1);
    assert.equal(security?.machineOf('AB'), 'west');
  } finally {
    mock.timers.reset();
    rmSync(home, { recursive: true });
  }
});
