import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { QuotaStatus } from '../app/control.ts';
import { runPie } from '../testing/pie.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { EXIT } from './failure.ts';
import { ROOT } from './paths.ts';

const BIN = path.join(ROOT, 'gateway/cli/bin.js');

describe('pie quota and pie usage', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
    await platform.register({ name: 'story' });
  });
  after(() => platform.stop());

  const pie = (...args: string[]) => runPie(platform, args);
  const ask = async (url: string, init: RequestInit = {}) =>
    fetch(`${platform.url}${url}`, {
      ...init,
      headers: { authorization: `Bearer ${platform.apiKey}`, ...init.headers },
    });
  const invoke = () =>
    ask('/v1/functions/story/invocations', {
      method: 'POST',
      body: '{}',
      headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    });

  it('report the same number as the headers, the API and the client', async () => {
    for (const [quota, limit, shownLimit] of [
      ['requests-per-month', '10', '10'],
      ['tokens-per-month', '1_000', '1,000'],
    ] as const) {
      const { code, stdout, stderr } = await pie('quota', 'set', quota, limit, '--for', '2h', '--reason', 'trial');
      assert.equal(code, 0, stderr);
      assert.match(
        stdout,
        new RegExp(`${quota} of your tenant: at most ${shownLimit}, set by key_.* until .*\\(trial\\)`),
      );
    }
    const { id } = (await (await invoke()).json()) as { id: string };
    const attempt = await platform.attempt(id);
    await attempt.succeed(null, { inputTokens: 30, cachedTokens: 10, outputTokens: 12 });
    const { headers } = await invoke();

    const api: QuotaStatus[] = ((await (await ask('/v1/quotas')).json()) as { quotas: QuotaStatus[] }).quotas;
    const listed: QuotaStatus[] = JSON.parse((await pie('quota', '--json')).stdout);
    assert.deepEqual(listed, api);
    assert.deepEqual(await platform.client().quotas.list(), api);
    const remaining = api.map(({ quota, limit, used }) => [quota, limit - used]);
    // Two requests, and 32 tokens: 30 of input without the 10 cached ones, and 12 of output.
    assert.deepEqual(remaining, [
      ['requests-per-month', 8],
      ['tokens-per-month', 968],
    ]);
    const headerQuotas = [...(headers.get('ratelimit') ?? '').matchAll(/"([a-z-]+)";r=(\d+)/g)];
    assert.deepEqual(
      headerQuotas.map(([, quota, rest]) => [quota, Number(rest)]),
      remaining,
    );
    const [row] = JSON.parse((await pie('usage', '--by', 'month', '--json')).stdout);
    assert.deepEqual([row.requests, row.inputTokens - row.cachedTokens + row.outputTokens], [2, 32]);
    assert.match((await pie('quota')).stdout, /requests-per-month +2 +10 +in [\d.]+ \w+ +key_/);
    const { stdout } = await pie('usage', '--by', 'month', '--csv', '--per-function');
    // After the names: requests, invocations, succeeded, failed, cancelled, and tokens: input, output, cached.
    assert.match(stdout, /^at,tenant,function,requests[^\n]*\r\n[^,]+,default,story,2,2,1,0,0,30,12,10,/);
  });

  it('show amounts in the units of their quotas', async () => {
    for (const [quota, limit, shownLimit] of [
      ['gpu-ms-per-day', '5_400_000', '1 h 30 min'],
      ['cpu-ms-per-minute', '90000', '1 min 30 s'],
      ['storage-bytes', '1610612736', '1.5 GiB'],
      ['kv-pages', '4096', '4,096'],
    ] as const) {
      const { stdout } = await pie('quota', 'set', quota, limit);
      assert.ok(stdout.startsWith(`${quota} of your tenant: at most ${shownLimit}, set by `), stdout);
    }
    assert.match((await pie('quota')).stdout, /^gpu-ms-per-day +0 ms +1 h 30 min +in /m);
  });

  it('fail when the output cannot be written', {
    skip: !existsSync('/dev/full') && 'this system has no /dev/full',
  }, async () => {
    const env = { ...process.env, PIE_URL: platform.url, PIE_API_KEY: platform.apiKey };
    // The first command waits until its output is written. The second command has returned when its write fails.
    for (const args of [
      ['usage', '--csv'],
      ['completion', 'bash'],
    ]) {
      const full = openSync('/dev/full', 'w');
      const child = spawn(process.execPath, [BIN, ...args], { env, stdio: ['ignore', full, 'pipe'], timeout: 240_000 });
      closeSync(full);
      const [[code], stderr] = await Promise.all([once(child, 'close'), text(child.stderr!)]);
      assert.equal(code, EXIT.usage, stderr);
      assert.match(stderr, /Standard output cannot be written\.\n {2}why: ENOSPC/);
    }
  });

  it('refuse wrong limits, times and options, and say which limit applies after `none`', async () => {
    assert.equal((await pie('quota', 'set', 'tokens-per-day', 'lots')).code, EXIT.usage);
    const { code, stderr } = await pie('quota', 'set', 'dreams-per-day', '1');
    assert.equal(code, EXIT.refused);
    assert.match(stderr, /no quota "dreams-per-day"[\s\S]*requests-per-minute/);
    assert.equal(
      (await pie('quota', 'set', 'tokens-per-month', 'none')).stdout,
      'tokens-per-month of your tenant: no limit now.\n',
    );
    assert.equal(
      (await pie('quota', 'set', 'schedules', 'none')).stdout,
      'schedules of your tenant: the default again, at most 100.\n',
    );
    assert.match(
      (await pie('quota', 'set', 'latency-invocations', 'none')).stdout,
      /: no limit now, and so no latency targets are granted\.\n$/,
    );
    assert.equal((await pie('usage', '--from', 'yesterday')).code, EXIT.usage);
    assert.equal((await pie('usage', '--csv', '--json')).code, EXIT.usage);
    const unknown = await pie('quota', 'set', 'tokens-per-day', '5', '--function', 'nothing', '--json');
    assert.deepEqual([unknown.code, JSON.parse(unknown.stderr).error.code], [EXIT.refused, 'unknown-function']);
    const twice = await pie('quota', '--tenant', 'a', '--tenant', 'b');
    assert.match(twice.stderr, /once[\s\S]*pie quota --help/);
    const span = await pie('quota', 'set', 'tokens-per-day', '5', '--for', 'ever');
    assert.match(span.stderr, /not a time span[\s\S]*90s[\s\S]*pie quota set --help/);
  });
});
