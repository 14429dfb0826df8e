import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from './config.ts';
import { runProgram } from './programs.ts';

test('a child program gets its home, port and host, and does not inherit PIE_URL and PIE_API_KEY', async () => {
  const before = { ...process.env };
  Object.assign(process.env, { PIE_URL: 'https://another.example', PIE_API_KEY: 'pie_another', KEPT: 'yes' });
  try {
    const config = loadConfig({ PIE_HOME: '/tmp/none', PIE_PORT: '8999', PIE_HOST: '127.0.0.2' });
    const readVariables = 'const { PIE_URL, PIE_API_KEY, KEPT, PIE_HOME, PIE_PORT, PIE_HOST } = process.env';
    const expected = JSON.stringify([null, null, 'yes', '/tmp/none', '8999', '127.0.0.2']);
    const check = `${readVariables}; const all = [PIE_URL, PIE_API_KEY, KEPT, PIE_HOME, PIE_PORT, PIE_HOST]; process.exit(JSON.stringify(all) === '${expected}' ? 0 : 1)`;
    assert.equal(await runProgram(config, ['-e', check], { output: 'progress' }), 0);
  } finally {
    for (const name of ['PIE_URL', 'PIE_API_KEY', 'KEPT']) {
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  }
});

test('an abort before the start ends the program', { timeout: 240_000 }, async () => {
  const config = loadConfig({ PIE_HOME: '/tmp/none' });
  const args = ['-e', 'setTimeout(() => undefined, 600_000)'];
  const code = await runProgram(config, args, { output: 'progress', signal: AbortSignal.abort() });
  assert.equal(code, null, 'a signal ended it');
});
