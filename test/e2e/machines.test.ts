import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { PlatformLoad } from '#gateway/app/control.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { RUNTIME } from '#infra/runtimes.ts';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { openConnection } from '#scheduler/store/connection.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { hold, invoke, terminal, text } from '#test/harness/events.ts';
import { freePort, newHome, Platform, ROOT, runProgram, until } from '#test/harness/platform.ts';

const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };
/** Invocations that one runtime runs at once. */
const SLOTS = 2;
const CONFIG = `[gpu_host]\nplacement = "invocation"\n[runtime]\nconcurrency = ${SLOTS}\n`;
/** Input of an invocation that waits for a message. */
const HELD = { mark: 'held', tokens: 4, listenAt: 2 };

const masterKey = randomBytes(32).toString('base64');
let first: Platform;
let scheduler: Scheduler;
/** Variables that connect another machine to the Redis of `first`. */
let shared: NodeJS.ProcessEnv;
before(async () => {
  first = await Platform.start({
    functions: ['text-completion'],
    config: CONFIG,
    env: {
      PIE_MASTER_KEY: masterKey,
      PIE_GPU_HOST: `127.0.0.1:${await freePort()}`,
      PIE_RUNTIME: `127.0.0.1:${await freePort()}`,
    },
  });
  const { redis } = loadConfig(first.environment);
  assert.equal(redis.kind, 'private');
  shared = { REDIS_URL: `unix://${redis.kind === 'private' ? redis.socket : ''}` };
  scheduler = openScheduler({
    log: silentLog,
    connect: () => openConnection(redis.kind === 'private' ? redis.socket : ''),
  });
});
after(async () => {
  await scheduler?.close();
  await first?.[Symbol.asyncDispose]();
});

/** Starts invocations that wait for a message; resolves when each has sent a message and each runtime of `runtimes` fills its slots. */
async function holdOn(platform: Platform, runtimes: readonly string[]): Promise<string[]> {
  const held = await Promise.all(
    Array.from({ length: SLOTS * runtimes.length }, () => hold(platform, 'counted', HELD)),
  );
  const ids = held.map(({ id }) => id);
  await until('each runtime fills its slots', async () => {
    const records = await Promise.all(ids.map((id) => scheduler.invocations.get(id)));
    return runtimes.every(
      (name) => records.filter((record) => record?.runtimeId?.startsWith(`${name}~`)).length === SLOTS,
    );
  });
  return ids;
}

const statuses = async (ids: readonly string[]) => [
  ...new Set((await Promise.all(ids.map((id) => scheduler.invocations.get(id)))).map((record) => record?.status)),
];

const load = async (platform: Platform) => (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;

/** Runs `pie up` until it ends by itself. */
const runPieUp = async (env: NodeJS.ProcessEnv, ...flags: string[]) => {
  const home = await newHome();
  try {
    const own = { PIE_HOME: home, PIE_PORT: String(await freePort()), PIE_MODEL: 'stories15m' };
    return await runProgram(process.execPath, [path.join(ROOT, 'infra/up.ts'), '--no-functions', ...flags], {
      env: { ...process.env, ...own, ...env },
      cwd: ROOT,
    });
  } finally {
    await rm(home, { recursive: true, force: true });
  }
};

test('a start with the machine name of a running supervisor, or without the master key, fails and names the remedy', async () => {
  const [taken, keyless] = await Promise.all([
    runPieUp(shared),
    runPieUp({ ...shared, PIE_MACHINE: 'keyless' }, '--role', 'gateway'),
  ]);
  assert.equal(taken.code, 1);
  const { machine } = loadConfig(first.environment);
  assert.match(
    taken.stderr,
    new RegExp(`The machine name "${machine.name}" is taken by the supervisor of .* \\(process`),
  );
  assert.match(taken.stderr, new RegExp(`process ${first.supervisorPid}\\)\\. .*set PIE_MACHINE`));
  assert.equal(keyless.code, 1);
  assert.match(keyless.stderr, /There is no .*master\.key .*from another machine of this installation/);
});

test('two machines share gateways, runtimes and GPU hosts, and neither takes an invocation that the other runs', async () => {
  await deployWith(first, 'counted', {});
  const alone = await holdOn(first, [RUNTIME]);
  await using second = await Platform.start({
    functions: false,
    config: CONFIG,
    env: {
      ...shared,
      PIE_MACHINE: 'second',
      PIE_MASTER_KEY: masterKey,
      PIE_GPU_HOST: `127.0.0.1:${await freePort()}`,
      PIE_RUNTIME: `127.0.0.1:${await freePort()}`,
    },
  });
  assert.deepEqual(await statuses(alone), ['running'], 'the new runtime took no invocation of the first one');
  const names = (all: readonly { name: string }[]) => all.map(({ name }) => name).toSorted();
  await until('each runtime reaches both GPU hosts', async () => {
    const runtimes = await scheduler.runtimes.alive();
    const reached = runtimes.map(({ gpuHosts = [] }) => gpuHosts.filter(({ connected }) => connected).length);
    return reached.length === 2 && reached.every((count) => count === 2);
  });
  const { gpuHosts: firstGpuHosts, logsDirectory } = loadConfig(first.environment);
  await assert.rejects(
    GpuHostConnection.connect(firstGpuHosts[0]?.address ?? '', { deadlineMs: 500 }),
    /no GPU host answered/,
  );
  await until('plain TCP is refused', async () =>
    /refused a link why="a connection from 127\.0\.0\.1: ERR_SSL_/.test(
      await readFile(path.join(logsDirectory, 'gpu-host-1.log'), 'utf8'),
    ),
  );
  // Another machine registers a GPU host with the address of the first machine's GPU host.
  const taken = { name: 'gpu-host-1@taken', address: firstGpuHosts[0]?.address ?? '' };
  const machine = {
    name: 'taken',
    roles: ['gpu-host'],
    host: 'h',
    pid: 1,
    version: '1.0.0',
    gpuHosts: [taken],
  } as const;
  const lease = await MachineLease.claim(scheduler.store, machine, {
    log: silentLog,
    onTaken: () => assert.fail('no other has it'),
  });
  await until('the host that answers is refused under the other name', async () => {
    const log = await readFile(path.join(logsDirectory, 'runtime-1.log'), 'utf8');
    const { name } = loadConfig(first.environment).machine;
    return log.includes(`the GPU host at ${taken.address} shows the certificate of ${name}, not of taken`);
  });
  await until('that GPU host is shown as not connected', async () =>
    (await load(first)).gpuHosts.some(({ name, connected }) => name === taken.name && !connected),
  );
  await lease.release();
  await until('the machine is gone', async () => (await load(first)).gpuHosts.length === 2);
  const removal = Promise.withResolvers<Error>();
  const doomed = { ...machine, name: 'doomed', gpuHosts: [], certificate: 'AB:CD' };
  await MachineLease.claim(scheduler.store, doomed, { log: silentLog, onTaken: removal.resolve });
  assert.match((await second.pie(['machines', 'remove', 'doomed'])).stdout, /^Removed doomed\.$/m);
  assert.match((await removal.promise).message, /^An operator has removed the machine "doomed"\./);
  assert.match((await second.pie(['machines', 'remove', 'doomed'])).stderr, /There is no machine "doomed"/);
  const { machines, runtimes, gpuHosts } = await load(second);
  assert.deepEqual(names(machines), [loadConfig(first.environment).machine.name, 'second'].toSorted());
  assert.deepEqual(names(runtimes), ['runtime-1', 'runtime-1@second']);
  assert.deepEqual(names(gpuHosts), ['gpu-host-1', 'gpu-host-1@second']);

  await Promise.all(alone.map((id) => scheduler.cancel(id, 'test')));
  const held = await holdOn(second, [RUNTIME, `${RUNTIME}@second`]);
  // A restarted runtime ends the invocations that its killed process ran, and no others.
  process.kill(second.pid(RUNTIME), 'SIGKILL');
  await second.restarted(RUNTIME);
  const records = await Promise.all(held.map((id) => scheduler.invocations.get(id)));
  assert.deepEqual(records.map((record) => `${record?.runtimeId?.split('~')[0]} ${record?.status}`).toSorted(), [
    ...Array(SLOTS).fill('runtime-1 running'),
    ...Array(SLOTS).fill('runtime-1@second failed'),
  ]);
  await Promise.all(held.map((id) => scheduler.cancel(id, 'test')));

  // Each gateway shows the events of both runtimes; each runtime uses both GPU hosts.
  const expected = `result: ${text(await invoke(first, 'text-completion', STORY))}`;
  const story = async (platform: Platform) => {
    const events = await invoke(platform, 'text-completion', STORY);
    const end = terminal(events);
    return end?.event === 'result' ? `result: ${text(events)}` : JSON.stringify(end);
  };
  assert.ok(expected.length > 40, expected);
  for (let i = 0; i < 3; i++)
    assert.deepEqual(await Promise.all([first, second, second].map(story)), [expected, expected, expected]);
  const drain = (await second.pie(['gpu-hosts', 'drain', 'gpu-host-1', '--wait'])).stdout;
  assert.match(drain, /Drained gpu-host-1\. Nothing runs there/);
  assert.equal(await story(first), expected);
  assert.equal((await second.pie(['gpu-hosts', 'undrain', 'gpu-host-1'])).code, 0);

  const listed = (await second.pie(['machines'])).stdout;
  assert.match(listed, /\nsecond +there +gateway, runtime, gpu-host /);
  assert.equal(await second.stop(), 0);
  await until('a stopped machine is gone', async () => {
    const now = await load(first);
    return now.machines.length === 1 && now.gpuHosts.length === 1 && now.runtimes.length === 1;
  });
  assert.equal(await story(first), expected);
});
