import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PendingFunction } from '#infra/pending-functions.ts';
import { GatewayPlatform } from '../../testing/platform.ts';
import { EXIT } from '../failure.ts';
import { ROOT } from '../paths.ts';

describe('pie demo', () => {
  let platform: GatewayPlatform;
  /** Functions that the starting platform has not deployed yet. */
  let pending: readonly PendingFunction[] = [{ name: 'text-completion', isAwaited: true, state: 'building', tries: 0 }];
  let awaitedReads = 0;
  let builds = 0;
  before(async () => {
    const pendingFunctions = () => {
      awaitedReads++;
      return pending;
    };
    platform = await GatewayPlatform.start({ control: { pendingFunctions } });
    platform.build = () => {
      builds++;
      return { ok: false, code: 'build-failed', message: 'refused on purpose', hint: 'none' };
    };
  });
  after(() => platform.stop());

  it('builds nothing while a starting platform deploys its first functions', async () => {
    const child = spawn(process.execPath, [path.join(ROOT, 'gateway/cli/bin.js'), 'demo'], {
      env: { ...process.env, PIE_URL: platform.url, PIE_API_KEY: platform.apiKey },
      stdio: ['ignore', 'ignore', 'pipe'],
      timeout: 240_000,
    });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const closed = once(child, 'close');
    // After three reads of the list, the command has seen that a function is missing, and has waited.
    while (awaitedReads < 3 && child.exitCode === null) await sleep(10);
    assert.equal(builds, 0);
    pending = [];
    await closed;
    assert.deepEqual([child.exitCode, builds], [EXIT.refused, 1], stderr);
    assert.match(stderr, /refused on purpose/);
  });
});
