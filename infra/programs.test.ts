import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from './config.ts';
import { runProgram } from './programs.ts';

test('a program of the platform does not see the platform that the shell names for commands', async () => {
  const before = { ...process.env };
  Object.assign(process.env, { PIE_URL: 'https://another.example', PIE_API_KEY: 'pie_another', KEPT: 'yes' });
  try {
    const config = loadConfig({ PIE_HOME: '/tmp/none', PIE_PORT: '8999' });
    const told = 'const { PIE_URL, PIE_API_KEY, KEPT, PIE_PORT } = process.env';
    const check = `${told}; process.exit(PIE_URL === undefined && PIE_API_KEY === undefined && KEPT + PIE_PORT === 'yes8999' ? 0 : 1)`;
    assert.equal(await runProgram(config, ['-e', check], { output: 'progress' }), 0);
  } finally {
    for (const name of ['PIE_URL', 'PIE_API_KEY', 'KEPT']) {
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  }
});
