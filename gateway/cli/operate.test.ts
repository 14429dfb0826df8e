import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { TestPlatform } from '../testing/platform.ts';
import { EXIT } from './failure.ts';

const BIN = fileURLToPath(new URL('bin.js', import.meta.url));

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

describe('operating', () => {
  let platform: TestPlatform;
  before(async () => {
    platform = await TestPlatform.start();
    for (const name of ['echo', 'other']) await platform.register({ name });
  });
  after(() => platform.stop());

  function pie(args: readonly string[], watch?: (child: ChildProcess, stdout: string) => void): Promise<Result> {
    const env = { ...process.env, PIE_URL: platform.url, PIE_API_KEY: platform.apiKey };
    const child = spawn(process.execPath, [BIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 20_000 });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      watch?.(child, stdout);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
  }

  async function ok(args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await pie(args);
    assert.equal(code, EXIT.ok, stderr);
    return stdout;
  }

  it('ps shows what waits and runs, and with --all what has ended, as a table or as lines of JSON', async () => {
    const client = platform.client();
    const { id: done } = await client.submit('echo', {});
    await (await platform.attempt(done)).succeed(1, { inputTokens: 1200, outputTokens: 34, cpuMs: 5, gpuMs: 0.4 });
    const { id: running } = await client.submit('echo', {});
    await (await platform.attempt(running)).start();
    const { id: waiting } = await client.submit('other', {});
    const table = await ok(['ps']);
    assert.match(table, /^ID +FUNCTION +STATUS +AGE +WAITED +TOKENS +GPU +CPU\n/);
    assert.match(table, new RegExp(`${waiting} +other@[0-9a-f]+ +queued`));
    assert.match(table, new RegExp(`${running} +echo@[0-9a-f]+ +running`));
    assert.doesNotMatch(table, new RegExp(done));
    const all = (await ok(['ps', '--all', '--json']))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string });
    assert.deepEqual(all.map(({ id }) => id).toSorted(), [done, running, waiting].toSorted());
    assert.match(await ok(['ps', '--status', 'succeeded']), new RegExp(`${done} .* succeeded .* 1,234 +0 ms +5 ms`));
    assert.match((await pie(['ps', '--function', 'nothing'])).stderr, /There are none/);
    assert.equal((await pie(['ps', '--status', 'gone'])).code, EXIT.usage);
    let watched = false;
    const { code, stdout } = await pie(['ps', '--watch', '--all'], (child, text) => {
      if (!watched && text.includes(done)) watched = child.kill('SIGINT');
    });
    assert.equal(code, EXIT.ok);
    assert.equal(stdout.includes('\x1b'), false, 'escape codes in a pipe');
  });

  it('cancel takes ids, a function, or all, and asks before it takes several', async () => {
    const client = platform.client();
    const ids: string[] = [];
    for (const name of ['echo', 'echo', 'other']) ids.push((await client.submit(name, {})).id);
    const stateOf = async (id = '') => (await client.invocation(id)).status;
    const asked = await pie(['cancel', '--function', 'echo']);
    assert.equal(asked.code, EXIT.usage);
    assert.match(asked.stderr, /Cancel \d+ invocations of echo\?[\s\S]*--yes/);
    assert.equal(await stateOf(ids[0]), 'queued');
    await ok(['cancel', '--function', 'echo', '--yes']);
    assert.deepEqual(await Promise.all(ids.map(stateOf)), ['cancelled', 'cancelled', 'queued']);
    const { code, stdout, stderr } = await pie(['cancel', ids[2] ?? '', 'inv_nothing']);
    assert.equal(code, EXIT.refused, stderr);
    assert.match(stdout, new RegExp(`^${ids[2]} +cancelled\n$`));
    assert.match(stderr, /inv_nothing/);
    for (const wrong of [['cancel'], ['cancel', 'x', '--all']]) assert.equal((await pie(wrong)).code, EXIT.usage);
  });

  it('invoke hands on deadline, webhook and key; status shows them', async () => {
    const once = ['invoke', 'echo', '--async', '--cancel-after', '5m', '--webhook', 'https://example.com/x'];
    const id = (await ok([...once, '--idempotency-key', 'once'])).trim();
    assert.equal((await platform.scheduler.invocations.get(id))?.deadlineMs, 300_000);
    assert.match(await ok(['status', id]), /webhook https:\/\/example\.com\/x: waiting, 0 attempts/);
    const again = await pie([...once, '--idempotency-key', 'once', '--json']);
    assert.equal(again.code, EXIT.refused);
    const { code, invocation } = JSON.parse(again.stderr).error;
    assert.deepEqual([code, invocation], ['idempotency-in-flight', id]);
    for (const wrong of ['0', '5w', 'soon']) {
      assert.equal((await pie(['invoke', 'echo', '--cancel-after', wrong])).code, EXIT.usage);
    }
    assert.equal((await pie(['invoke', 'echo', '--webhook', 'https://10.0.0.1/'])).code, EXIT.refused);
  });

  it('logs filter, and cover all functions without a name', async () => {
    const client = platform.client();
    for (const [name, message] of [
      ['echo', 'from echo'],
      ['other', 'from other'],
    ] as const) {
      const attempt = await platform.attempt((await client.submit(name, {})).id);
      await attempt.append({ event: 'log', data: { level: 'info', message } });
    }
    assert.match(await ok(['logs', '--search', 'FROM']), / echo .*from echo\n.* other .*from other\n$/);
    assert.match(await ok(['logs', 'echo', '--since', '1h', '--status', 'running']), /from echo\n$/);
    assert.equal(await ok(['logs', 'echo', '--status', 'failed']), '');
    for (const wrong of [
      ['--since', 'yesterday'],
      ['--status', 'gone'],
      ['--follow', '--until', '1h'],
    ])
      assert.equal((await pie(['logs', 'echo', ...wrong])).code, EXIT.usage);
  });

  it('webhooks secret shows it and rotates it', async () => {
    const first = await ok(['webhooks', 'secret']);
    assert.match(first, /^whsec_/);
    const { secret } = JSON.parse(await ok(['webhooks', 'secret', '--rotate', '--json']));
    assert.notEqual(`${secret}\n`, first);
    assert.equal(await ok(['webhooks', 'secret']), `${secret}\n`);
  });
});
