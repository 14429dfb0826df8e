import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { checkRedis } from './checks.ts';

describe('the check of Redis', () => {
  let directory: string;
  let server: ReturnType<typeof spawn>;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'pie-doctor-'));
    const socket = path.join(directory, 'redis.sock');
    server = spawn('redis-server', ['--port', '0', '--unixsocket', socket, '--requirepass', 'secret', '--save', ''], {
      cwd: directory,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const text of server.stdout ?? []) if (/ready to accept/i.test(String(text))) break;
  });
  after(async () => {
    server.kill();
    await once(server, 'exit');
    await rm(directory, { recursive: true });
  });
  const check = (url: string) => checkRedis({ PIE_HOME: directory, REDIS_URL: url });

  it('reports that a server demands a password, and hides the password of a URL', async () => {
    const { state, detail } = await check(`unix:${directory}/redis.sock`);
    assert.equal(state, 'failed');
    assert.match(detail, /NOAUTH/);
    const refused = await check('redis://:wrong-one@127.0.0.1:1');
    assert.equal(refused.state, 'failed');
    assert.match(refused.detail, /^redis:\/\/:\*\*\*@127\.0\.0\.1:1: connect ECONNREFUSED/);
    assert.equal(refused.detail.includes('wrong-one'), false);
  });

  it('finds the program redis-server, which Pie starts when no URL is configured', async () => {
    // Without a URL, the check only asks the program for its version. It does not connect to the server of this test.
    const { state, detail } = await checkRedis({ PIE_HOME: directory });
    assert.deepEqual([state, detail.split(' ')[0]], ['ok', 'redis-server']);
  });

  it('refuses a REDIS_URL that is not a URL', async () => {
    await assert.rejects(check('nonsense'), /REDIS_URL: must be redis:/);
  });
});
