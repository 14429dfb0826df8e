import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { loadAddon } from '#gpu-host/backends/cuda/addon.ts';
import { testAddon } from '#gpu-host/backends/testing/cuda.ts';
import { ROOT } from '#test/harness/platform.ts';

let home: string;
let addon: string;
before(async () => {
  home = mkdtempSync(path.join(os.tmpdir(), 'pie-doctor-'));
  addon = await testAddon();
});
after(() => rmSync(home, { recursive: true, force: true }));

/** All findings of `pie doctor` with this pie.toml and these variables, by name. */
function findings(config: string, env: NodeJS.ProcessEnv = {}): Map<string, { state: string; detail: string }> {
  writeFileSync(path.join(home, 'pie.toml'), config);
  const { stdout, stderr } = spawnSync(process.execPath, [path.join(ROOT, 'gateway/cli/bin.js'), 'doctor', '--json'], {
    env: { ...process.env, PIE_HOME: home, PIE_PORT: '1', PIE_URL: '', PIE_API_KEY: '', ...env },
    encoding: 'utf8',
  });
  assert.equal(stderr, '');
  const { findings } = JSON.parse(stdout) as { findings: { name: string; state: string; detail: string }[] };
  return new Map(findings.map((finding) => [finding.name, finding]));
}

const MODEL = '[[model]]\nname = "stories15m"\nbackend = "cuda"\n';

test('doctor compares the configuration with the cards that the addon finds', async (context) => {
  if (!loadAddon(addon).emulated) return context.skip('the findings depend on the card of this machine');
  const found = findings(`${MODEL}memory_mb = 100\n[gpu_host]\ncount = 2\n`, { PIE_CUDA_ADDON: addon });
  assert.match(found.get('configuration')?.detail ?? '', /^stories15m by cuda; 2 GPU hosts$/);
  assert.match(found.get('card 0')?.detail ?? '', /^Emulated device; .*compute capability 9\.0; .*emulated on the CPU/);
  assert.equal(found.get('gpu-host-2')?.state, 'failed');
  assert.match(
    found.get('gpu-host-2')?.detail ?? '',
    /"stories15m" is configured for device 1, but this machine has only device 0/,
  );
  assert.equal(findings(MODEL, { PIE_CUDA_ADDON: addon }).get('devices')?.state, 'ok');
});

test('doctor reports a missing addon and a setting that does not apply', () => {
  const missing = { PIE_CUDA_ADDON: path.join(home, 'none.node') };
  const { state, detail } = findings(MODEL, missing).get('cards') ?? {};
  assert.equal(state, 'failed');
  assert.match(detail ?? '', /there is no .*none\.node/);
  const wrong = findings('[[model]]\nname = "stories15m"\nprecision = "bf16"\n').get('configuration');
  assert.equal(wrong?.state, 'failed');
  assert.match(wrong?.detail ?? '', /precision: needs backend = "cuda"/);
});
