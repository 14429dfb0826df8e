import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { parse } from 'smol-toml';
import { loadConfig } from './config.ts';
import { joinedSettings, sharedSettings } from './machine-settings.ts';

const FILE = `
drain_ms = 5000
[[model]]
name = "stories15m"
[[model]]
name = "words"
kind = "embedding"
source = "file:/models/words"
[gateway]
host = "10.0.0.1"
port = 80
streams = 100
[gpu_host]
address = "10.0.0.1:7400"
[runtime]
address = "10.0.0.1:7500"
concurrency = 7
[redis]
url = "rediss://operator:secret@10.0.0.1"
ca = "ca.pem"
[machine]
name = "first"
address = "10.0.0.1"
roles = ["gateway"]
`;

test('a machine that joins takes over the settings of the whole platform, and none of a single machine', () => {
  const shared = sharedSettings(parse(FILE), { PIE_BACKEND: 'reference', PIE_BITS: '32', PIE_MODEL: 'ignored' });
  const text = JSON.stringify(shared);
  assert.ok(!text.includes('10.0.0.1') && !text.includes('secret'), text);
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-joined-'));
  try {
    const redis = { url: 'rediss://pie-machine-east:p%2Fw@10.0.0.1:6380', ca: 'redis-ca.pem' };
    const joined = { name: 'east', roles: ['runtime', 'gpu-host'], address: 'fd00::2', redis } as const;
    writeFileSync(path.join(home, 'pie.toml'), joinedSettings(shared, joined));
    const config = loadConfig({ PIE_HOME: home });
    assert.deepEqual(config.machine, { name: 'east', roles: ['runtime', 'gpu-host'], address: 'fd00::2' });
    assert.deepEqual(config.redis, { kind: 'external', url: redis.url, ca: path.join(home, 'redis-ca.pem') });
    assert.deepEqual(
      [config.gpuHosts[0]?.address, config.runtime.address, config.host, config.port],
      ['[fd00::2]:7400', '[fd00::2]:7500', '127.0.0.1', 8787],
    );
    assert.deepEqual(
      [config.drainMs, config.gateway.streams, config.runtime.concurrency, config.models[0]?.backend],
      [5000, 100, 7, 'reference'],
    );
    assert.deepEqual(
      config.encoders.map(({ name }) => name),
      ['words'],
    );
  } finally {
    rmSync(home, { recursive: true });
  }
});

test('machines that join get the model that the environment of the sending machine chooses', () => {
  assert.deepEqual(sharedSettings({}, { PIE_MODEL: 'stories15m', PIE_BITS: '8' }), {
    model: [{ name: 'stories15m', bits: 8 }],
  });
  assert.deepEqual(sharedSettings({ gateway: { port: 1 } }, {}), {});
});
