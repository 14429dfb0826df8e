import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { PlatformLoad } from '#gateway/app/control.ts';
import { RUNTIME } from '#infra/runtimes.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { hold, invoke, terminal } from '#test/harness/events.ts';
import { Platform, ROOT, until } from '#test/harness/platform.ts';
import { createTenant, submit, type TenantClient } from '#test/harness/tenants.ts';

/** The scheduler reserves one of 16 slots for tenants that hold none. */
const CONFIG = '[runtime]\nconcurrency = 16\n';
const RUNNING = 15;
const WAITING = 5;
/** Each run of `counted` writes 4 tokens and waits for a message after the second token. */
const INPUT = { tokens: 4, listenAt: 2 };

let platform: Platform;
let flood: TenantClient;
let other: TenantClient;
before(async () => {
  platform = await Platform.start({ functions: false, config: CONFIG });
  [flood, other] = [await createTenant(platform, 'flood'), await createTenant(platform, 'other')];
  for (const { apiKey } of [flood, other]) await deployWith(platform, 'counted', {}, apiKey);
});
after(() => platform?.[Symbol.asyncDispose]());

async function noRuntime(): Promise<boolean> {
  const { runtimes } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
  return runtimes.every(({ alive }) => !alive);
}

test('an invocation of another tenant starts at once beside a flood that fills its share of the slots', async () => {
  const floods = await Promise.all(
    Array.from({ length: RUNNING }, (_, i) => hold(flood, 'counted', { mark: `flood-${i}`, ...INPUT })),
  );
  for (let i = 0; i < WAITING; i++) await submit(flood, 'counted', { mark: `waits-${i}`, tokens: 1 });
  const newcomer = await hold(other, 'counted', { mark: 'newcomer', ...INPUT });
  const { tenants } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
  assert.deepEqual(
    tenants.filter(({ tenant }) => tenant !== 'default').map((each) => [each.tenant, each.running, each.waiting]),
    [
      ['flood', RUNNING, WAITING],
      ['other', 1, 0],
    ],
  );
  await Promise.all([newcomer, ...floods].map((held) => held.goOn()));
  for (const { ended } of [newcomer, ...floods]) assert.equal(terminal(await ended)?.event, 'result');
});

for (const signal of ['SIGKILL', 'SIGSTOP'] as const) {
  test(`deploys and invocations wait for the replacement of a runtime that got ${signal}`, async () => {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-deploy-'));
    try {
      const file = path.join(directory, 'component.wasm');
      const build = await platform.pie(['build', path.join(ROOT, 'test/inferlets/counted'), '--out', file]);
      assert.equal(build.code, 0, build.stderr);
      const form = new FormData();
      form.set('manifest', JSON.stringify({ name: 'late', grants: { store: true } }));
      form.set('component', new Blob([await readFile(file)], { type: 'application/wasm' }), 'component.wasm');
      const stopped = platform.pid(RUNTIME);
      const restarted = platform.restarted(RUNTIME);
      process.kill(stopped, signal);
      // A stopped runtime counts as alive until it loses its lease, so wait until no runtime is alive. The supervisor then replaces the
      // runtime. On a busy machine the poll may miss the time between both events, so the restart ends the wait, too.
      if (signal === 'SIGSTOP') await Promise.race([until('no runtime is alive', noRuntime), restarted]);
      const [response, events] = await Promise.all([
        other.fetch('/v1/functions/late', { method: 'PUT', body: form }),
        invoke(other, 'counted', { mark: signal, tokens: 2 }),
      ]);
      assert.ok(response.ok, await response.clone().text());
      assert.equal(terminal(events)?.event, 'result', JSON.stringify(events));
      await restarted;
      assert.notEqual(platform.pid(RUNTIME), stopped);
      assert.equal(terminal(await invoke(other, 'late', { mark: `late-${signal}`, tokens: 2 }))?.event, 'result');
      await until('the platform is ready', async () => (await platform.fetch('/readyz')).ok);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}
