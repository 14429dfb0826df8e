import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { ConfigError, loadConfig } from './config.ts';

const home = mkdtempSync(path.join(os.tmpdir(), 'pie-config-'));
after(() => rmSync(home, { recursive: true, force: true }));

function withToml(text: string, environment: NodeJS.ProcessEnv = {}) {
  writeFileSync(path.join(home, 'pie.toml'), text);
  return loadConfig({ PIE_HOME: home, ...environment });
}

test('defaults: a private Redis, one GPU host with stories15m', () => {
  const config = withToml('');
  assert.equal(config.port, 8787);
  assert.equal(config.redis.kind, 'private');
  assert.deepEqual(
    config.gpuHosts[0]?.models.map((model) => [model.name, model.backend, model.bits]),
    [['stories15m', 'onnx', 32]],
  );
});

test('the environment wins over the file', () => {
  const config = withToml('[gateway]\nport = 9000\n[[model]]\nname = "m"\nsource = "file:/m"\n', {
    PIE_PORT: '9001',
    PIE_BITS: '8',
  });
  assert.equal(config.port, 9001);
  assert.deepEqual(
    config.gpuHosts[0]?.models.map((model) => [model.source, model.bits, model.headBits]),
    [['file:/m', 8, 8]],
  );
});

test('an empty variable counts as unset', () => {
  assert.equal(withToml('', { PIE_PORT: '', REDIS_URL: '' }).port, 8787);
});

for (const [what, text, says] of [
  ['an unknown key', 'colour = "red"', /colour/],
  ['a value out of range', '[[model]]\nname = "m"\npage_size = 64', /model\.0\.page_size/],
  ['tensor parallelism', '[[model]]\nname = "m"\ntensor_parallel_size = 2', /tensor_parallel_size/],
  ['two models of one name', '[[model]]\nname = "m"\n[[model]]\nname = "m"', /same name/],
  ['broken TOML', '[[model', /pie\.toml/],
] as const) {
  test(`${what} is refused, with its place`, () => {
    assert.throws(
      () => withToml(text),
      (error) => error instanceof ConfigError && says.test(error.message),
    );
  });
}

test('a wrong variable is refused', () => {
  assert.throws(() => withToml('', { PIE_PORT: '99999' }), /PIE_PORT/);
});

test('sockets of a home with a long path go where their path is short', () => {
  const config = loadConfig({ PIE_HOME: path.join(home, 'x'.repeat(120)) });
  assert.ok(Buffer.byteLength(config.runDirectory) <= 80);
});
