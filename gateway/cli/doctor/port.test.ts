import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net, { type AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { checkPort } from './checks.ts';

test('checkPort checks the host and port of pie.toml', async () => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-doctor-'));
  const other = net.createServer().listen(0, '127.0.0.2');
  try {
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    writeFileSync(path.join(home, 'pie.toml'), `[gateway]\nhost = "127.0.0.2"\nport = ${port}\n`);
    await assert.rejects(checkPort({ PIE_HOME: home }), {
      name: 'ConfigError',
      message: `Port ${port} on 127.0.0.2 cannot be used (EADDRINUSE). Set PIE_PORT to a free one.`,
    });
    other.close();
    await once(other, 'close');
    assert.deepEqual(await checkPort({ PIE_HOME: home }), {
      name: 'port',
      state: 'ok',
      detail: `${port} on 127.0.0.2 is free`,
    });
  } finally {
    other.close();
    rmSync(home, { recursive: true });
  }
});
