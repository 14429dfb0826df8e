import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { affinityKey, preference } from '#scheduler/policies/placement.ts';
import { call as callOf, deploy, failure as failureOf, statsOfEachHost } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

const HOSTS = ['gpu-host-1', 'gpu-host-2'] as const;
const PROMPT = 'Once upon a time there was a little dog who wanted to learn how to swim in the big blue lake.';
const CONTINUATION = ' One day he';

/** Returns a session affinity: invocations with it run on the host with index `host`. */
function affinityOf(host: number): string {
  for (let i = 0; ; i++) {
    const affinity = `at-${i}`;
    if (preference(affinityKey('default', affinity), HOSTS)[0] === host) return affinity;
  }
}

describe('saved contexts and KV files of two GPU hosts', () => {
  let platform: Platform;
  let shared: string;
  before(async () => {
    shared = await mkdtemp(path.join(os.tmpdir(), 'pie-shared-'));
    const config = `[gpu_host]\ncount = 2\nplacement = "invocation"\n[storage]\nshared_directory = "${shared}"\n`;
    platform = await Platform.start({ functions: [], config });
    await deploy(platform, 'cache', 'files');
  });
  after(async () => {
    await platform?.[Symbol.asyncDispose]();
    await rm(shared, { recursive: true, force: true });
  });

  const on = (host: number) => ({ affinity: affinityOf(host) });
  const ends = async (host: number, name: string, input: object) =>
    terminal(await invoke(platform, name, input, on(host)));
  const call = (host: number, name: string, input: object) => callOf(platform, name, input, on(host));
  const failure = async (host: number, name: string, input: object) =>
    String((await failureOf(platform, name, input, on(host))).message);
  const statsByHost = () => statsOfEachHost(platform);

  test('a saved context continues with the same tokens on both GPU hosts', async () => {
    for (const persistent of [true, false]) {
      const name = `dog/${persistent}`;
      const { saved } = await call(0, 'cache', { action: 'save', name, prompt: PROMPT, persistent });
      const [one, other] = [
        await call(0, 'cache', { action: 'open', name, more: CONTINUATION }),
        await call(1, 'cache', { action: 'open', name, more: CONTINUATION }),
      ];
      assert.equal(other.opened, saved.length);
      assert.deepEqual(other, one);
    }
    const [first, second] = await statsByHost();
    assert.ok(first && second && first.tokens > 0 && second.tokens > 0, 'both hosts computed');
    assert.deepEqual([first.exports, second.exports], [2, 0], 'the contexts stay where they were saved');
    assert.match(await failure(1, 'cache', { action: 'save', name: 'dog/true', prompt: PROMPT }), /taken/);
    const names = (await call(1, 'cache', { action: 'list' })).exports.map(({ name }: { name: string }) => name);
    assert.deepEqual(names, ['dog/false', 'dog/true']);
    await call(1, 'cache', { action: 'remove', name: 'dog/true' });
    assert.match(await failure(0, 'cache', { action: 'open', name: 'dog/true' }), /not-found/);
    await call(0, 'cache', { action: 'remove', name: 'dog/false' });
    assert.match(await failure(1, 'cache', { action: 'open', name: 'dog/false' }), /not-found/);
  });

  test('a KV file can be read, extended and removed from the other GPU host', async () => {
    const name = 'lake';
    await call(0, 'files', { action: 'create', name, prompt: PROMPT, persistent: true });
    const read = (host: number) => call(host, 'files', { action: 'read', name, more: CONTINUATION });
    assert.deepEqual(await read(1), await read(0));
    const { tokens } = await call(1, 'files', { action: 'append', name, more: CONTINUATION, persistent: true });
    const [here, there] = [await read(0), await read(1)];
    assert.equal(here.tokens, tokens);
    assert.deepEqual(there, here);
    await call(1, 'files', { action: 'remove', name });
    assert.match(await failure(0, 'files', { action: 'read', name, more: CONTINUATION }), /not-found/);
  });

  test('opening a name on one GPU host fails as unavailable while the host that keeps the name is down, and works afterwards', async () => {
    const name = 'kept';
    await call(0, 'cache', { action: 'save', name, prompt: PROMPT, persistent: true });
    const { tokens } = await call(1, 'cache', { action: 'open', name, more: CONTINUATION });
    const restarted = platform.restarted(HOSTS[0]);
    process.kill(platform.supervisorPid, 'SIGSTOP');
    process.kill(platform.pid(HOSTS[0]), 'SIGKILL');
    try {
      await until('the runtime has noticed the loss', async () => {
        const why = await failure(1, 'cache', { action: 'open', name, more: CONTINUATION });
        return /unavailable/.test(why) && /kept by GPU host gpu-host-1/.test(why);
      });
    } finally {
      process.kill(platform.supervisorPid, 'SIGCONT');
    }
    await restarted;
    await until('the name is found', async () => {
      const end = await ends(1, 'cache', { action: 'open', name, more: CONTINUATION });
      if (end?.event !== 'result') return false;
      assert.deepEqual((end.data.output as { tokens: number[] }).tokens, tokens);
      return true;
    });
    await call(1, 'cache', { action: 'remove', name });
  });

  test('a durable context and a durable file are found while their GPU host is down, and after the loss of its disk', async () => {
    const name = 'safe';
    await call(0, 'cache', { action: 'save', name, prompt: PROMPT, durable: true });
    await call(0, 'files', { action: 'create', name, prompt: PROMPT, durable: true });
    const results = async (host: number) => [
      await call(host, 'cache', { action: 'open', name, more: CONTINUATION }),
      await call(host, 'files', { action: 'read', name, more: CONTINUATION }),
    ];
    const expected = await results(0);
    const restarted = platform.restarted(HOSTS[0]);
    process.kill(platform.supervisorPid, 'SIGSTOP');
    process.kill(platform.pid(HOSTS[0]), 'SIGKILL');
    try {
      await rm(path.join(platform.home, 'kv', HOSTS[0]), { recursive: true });
      assert.deepEqual(await results(1), expected);
    } finally {
      process.kill(platform.supervisorPid, 'SIGCONT');
    }
    await restarted;
    await until('the host is back', async () => (await ends(0, 'cache', { action: 'list' }))?.event === 'result');
    for (const host of [0, 1]) assert.deepEqual(await results(host), expected);
    await call(0, 'cache', { action: 'remove', name });
    await call(1, 'files', { action: 'remove', name });
    for (const host of [0, 1]) {
      assert.match(await failure(host, 'cache', { action: 'open', name }), /not-found/);
      assert.match(await failure(host, 'files', { action: 'read', name, more: CONTINUATION }), /not-found/);
    }
    const remaining = await readdir(shared, { recursive: true, withFileTypes: true });
    assert.deepEqual(
      remaining.filter((entry) => entry.isFile()),
      [],
    );
    await until('no page is held', async () => (await statsByHost()).every(({ pages }) => pages.owned === 0));
  });
});
