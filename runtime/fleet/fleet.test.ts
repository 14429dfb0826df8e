import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, afterEach, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { sessionWeight } from '../sandboxes/kernel-limits.ts';
import { RuntimePlatform } from '../testing/platform.ts';
import { TEST_SANDBOXES } from '../testing/sandboxes.ts';
import { BUSY_RUNS } from './policy.ts';

/** Reports that it runs, then sleeps, computes forever, or returns. */
const GUEST = `
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';
  export async function run(input) {
    const { do: next } = JSON.parse(input);
    send({ tag: 'text', val: 'here' });
    if (next === 'sleep') await sleep(100_000).read();
    if (next === 'spin') for (;;);
    return '"done"';
  }
`;

/** Fills `mib` MiB, reports it, and sleeps. */
const FILLING = `
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';
  export async function run(input) {
    const { mib } = JSON.parse(input);
    globalThis.held = new Uint8Array(mib << 20).fill(7);
    send({ tag: 'text', val: 'here' });
    const outcome = await sleep(100_000).read();
    return JSON.stringify(outcome.tag);
  }
`;

describe('a sandbox that exceeds its memory', () => {
  it('loses its newest invocation and keeps the older ones', async () => {
    const sandboxes = { ...TEST_SANDBOXES, memoryMb: 256 };
    await using platform = await RuntimePlatform.start({ runtime: { sandboxes } });
    const deployed = await platform.deploy(FILLING, { name: 'filling', limits: { memoryMb: 512 } });
    const older = await platform.submit(deployed, { mib: 1 });
    for await (const { event } of platform.scheduler.events.follow(older, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') break;
    }
    const { end } = await platform.invoke(deployed, { mib: 300 });
    assert.equal(end.data.code, 'memory-limit');
    assert.match(end.data.message ?? '', /was the newest when the functions of its tenant passed their 256 MB/);
    const record = platform.log.records.find(({ fields }) => fields.code === 'memory-limit');
    const { residentBytes, limitBytes } = (record?.fields.figures ?? {}) as Record<string, number>;
    assert.ok((residentBytes ?? 0) > (limitBytes ?? Number.NaN), `${residentBytes} of ${limitBytes}`);
    assert.equal((await platform.scheduler.invocations.get(older))?.status, 'running');
    await platform.scheduler.cancel(older, 'enough');
    assert.equal((await platform.transcript(older)).end.data.code, 'cancelled');
  });
});

it('the start of a sandbox throws when no file descriptors are left, and the runtime goes on', async () => {
  const script = `
    import { closeSync, openSync } from 'node:fs';
    import { startSandbox } from ${JSON.stringify(new URL('process.ts', import.meta.url).href)};
    const layers = { isolation: 'process', wrapper: [], notice: null };
    const held = [];
    try {
      for (;;) held.push(openSync('/dev/null'));
    } catch {
      // No descriptor is left.
    }
    let failed = 'no error';
    try {
      startSandbox({ layers, memoryMb: 64, poolMb: 1 }, {});
    } catch (error) {
      failed = error.message;
    }
    for (const fd of held) closeSync(fd);
    setImmediate(() => process.stdout.write(failed));`;
  const limited = ['-c', 'ulimit -n 128; exec "$0" "$@"', process.execPath, '--input-type=module', '-e', script];
  assert.match((await promisify(execFile)('/bin/sh', limited)).stdout, /no process could be started for a sandbox/);
});

/** Reports that it runs, launches itself recursively to the given depth, and sleeps at each depth. */
const FAMILY = `
  import { Child } from 'pie:inferlet/children@0.1.0';
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';
  export async function run(input) {
    const { depth } = JSON.parse(input);
    send({ tag: 'text', val: 'here' });
    if (depth > 0) globalThis.child = new Child('family', JSON.stringify({ depth: depth - 1 }));
    await sleep(100_000).read();
    return '"done"';
  }
`;

describe('a busy tenant', () => {
  it('takes spares up to its bound, runs children beside their parents, and loses idle sandboxes', async () => {
    const sandboxes = { ...TEST_SANDBOXES, perTenant: 2, spares: 1, idleMs: 1000 };
    await using platform = await RuntimePlatform.start({ runtime: { sandboxes } });
    const { fleet } = platform.runtime;
    const hasSpare = () => [...fleet.sandboxes].some(({ tenant }) => tenant === null);
    const tenantSandboxes = () => [...fleet.sandboxes].filter(({ tenant }) => tenant === 'default');
    const guest = await platform.deploy(GUEST);
    const family = await platform.deploy(FAMILY, { name: 'family', grants: { launch: ['family'] } });
    const running: string[] = [];
    for (let i = 0; i < BUSY_RUNS; i++) running.push(await platform.submit(guest, { do: 'sleep' }));
    await eventually(
      () => tenantSandboxes().length === 1 && tenantSandboxes()[0]?.runs === BUSY_RUNS,
      'one sandbox has all invocations',
    );
    await eventually(hasSpare, 'there is a spare');
    const parent = await platform.submit(family, { depth: 2 });
    // The family is the parent and two generations of children.
    await eventually(
      () => tenantSandboxes().length === 2 && tenantSandboxes()[1]?.runs === 3,
      'the second sandbox has the family',
    );
    await eventually(hasSpare, 'there is another spare');
    for (let i = 0; i < BUSY_RUNS; i++) running.push(await platform.submit(guest, { do: 'sleep' }));
    const totalRuns = () => tenantSandboxes().reduce((sum, { runs }) => sum + runs, 0);
    await eventually(() => totalRuns() === 2 * BUSY_RUNS + 3, 'all invocations run');
    assert.equal(tenantSandboxes().length, 2);
    for (const invocation of [...running, parent]) await platform.scheduler.cancel(invocation, 'enough');
    for (const invocation of [...running, parent]) await platform.transcript(invocation);
    await eventually(() => tenantSandboxes().length === 0, 'the sandboxes of the tenant have ended');
  });
});

describe('an invocation that waits for a sandbox', () => {
  it('is cancelled like any other', async () => {
    const sandboxes = { ...TEST_SANDBOXES, most: 1, spares: 0 };
    await using platform = await RuntimePlatform.start({ runtime: { sandboxes } });
    const first = await platform.submit(await platform.deploy(GUEST), { do: 'sleep' });
    for await (const { event } of platform.scheduler.events.follow(first, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') break;
    }
    const second = await platform.submit(await platform.deploy(GUEST, {}, 'another'), { do: 'end' });
    const statusOf = async (id: string) => (await platform.scheduler.invocations.get(id))?.status;
    await eventually(async () => (await statusOf(second)) === 'running', 'the second invocation waits for a sandbox');
    await platform.scheduler.cancel(second, 'enough');
    assert.equal((await platform.transcript(second)).end.data.code, 'cancelled');
    assert.equal(await statusOf(first), 'running');
    await platform.scheduler.cancel(first, 'enough');
    assert.equal((await platform.transcript(first)).end.data.code, 'cancelled');
  });
});

describe('the sandboxes of a runtime', () => {
  let platform: RuntimePlatform;
  let deployed: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start();
    deployed = await platform.deploy(GUEST, { name: 'guest', limits: { cpuMs: 60_000 } });
  });
  after(() => platform.stop());
  afterEach(async () => {
    // Deletes the record of lost sandboxes, because of which the function would run alone in the next test.
    const { redis, keys } = platform.scheduler.store;
    await redis.del(keys.conduct('default', deployed.name, deployed.version));
  });

  const sandboxOf = (tenant: string) => {
    const found = [...platform.runtime.fleet.sandboxes].find((sandbox) => sandbox.tenant === tenant);
    assert.ok(found);
    return found;
  };
  const begin = async (todo: string) => {
    const invocation = await platform.submit(deployed, { do: todo });
    for await (const { event } of platform.scheduler.events.follow(invocation, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return invocation;
    }
    throw new Error('the invocation ended before its first message');
  };

  it('keep a spare, and give a tenant one sandbox for all its invocations', async () => {
    await Promise.all([platform.invoke(deployed, { do: 'end' }), platform.invoke(deployed, { do: 'end' })]);
    await eventually(() => platform.runtime.fleet.sandboxes.size === 2, 'there is a sandbox and a spare');
    const tenants = [...platform.runtime.fleet.sandboxes].map(({ tenant }) => tenant ?? 'none');
    assert.deepEqual(tenants.sort(), ['default', 'none']);
  });

  it('are replaced after a kill: each invocation ends once as runtime-lost, and the next one works', async () => {
    const running = [await begin('sleep'), await begin('sleep')];
    const { process: killed } = sandboxOf('default');
    process.kill(killed.pid, 'SIGKILL');
    for (const invocation of running) {
      const { end } = await platform.transcript(invocation);
      assert.deepEqual([end.event, end.data.code], ['error', 'runtime-lost']);
      assert.match(end.data.message ?? '', /sandbox that ran this invocation was lost: it ended with SIGKILL\. Invoke/);
    }
    const died = platform.log.records.find(({ message }) => message === 'a sandbox ended');
    assert.deepEqual(died?.fields, {
      tenant: 'default',
      cause: 'it ended with SIGKILL',
      figures: { pid: killed.pid },
      alone: false,
      runs: 2,
      invocations: running,
    });
    const { end } = await platform.invoke(deployed, { do: 'end' });
    assert.equal(end.event, 'result');
    assert.ok([...platform.runtime.fleet.sandboxes].every((sandbox) => sandbox.process.pid !== killed.pid));
  });

  it('are killed when they hang', async () => {
    const invocation = await begin('sleep');
    process.kill(sandboxOf('default').process.pid, 'SIGSTOP');
    const { end } = await platform.transcript(invocation);
    assert.equal(end.data.code, 'runtime-lost');
    assert.match(end.data.message ?? '', /stood still for 3 s/);
    const record = platform.log.records.find(
      ({ fields: { invocation: id, code } }) => id === invocation && code !== undefined,
    );
    const { stoodMs, stillLimitMs } = (record?.fields.figures ?? {}) as Record<string, number>;
    assert.ok((stoodMs ?? 0) >= (stillLimitMs ?? Number.NaN), `${stoodMs} of ${stillLimitMs}`);
    assert.equal((await platform.invoke(deployed, { do: 'end' })).end.event, 'result');
  });

  it('survive a guest that only computes: the guest is preempted', async () => {
    const spinning = await begin('spin');
    const { pid } = sandboxOf('default').process;
    for (let i = 0; i < 20; i++) assert.equal((await platform.invoke(deployed, { do: 'end' })).end.event, 'result');
    assert.equal(sandboxOf('default').process.pid, pid);
    await platform.scheduler.cancel(spinning, 'enough');
    assert.equal((await platform.transcript(spinning)).end.data.code, 'cancelled');
  });

  it('yield their cores while a guest only computes, where the machine supports it', async (t) => {
    const [runtime] = await platform.scheduler.runtimes.list();
    if (runtime?.limits?.demotion !== 'autogroup') return t.skip(`demotion is by ${runtime?.limits?.demotion}`);
    const spinning = await begin('spin');
    const { pid } = sandboxOf('default').process;
    await eventually(() => sessionWeight(pid) === 'heavy', 'the sandbox is demoted', 60_000);
    await platform.scheduler.cancel(spinning, 'enough');
    await platform.transcript(spinning);
    await eventually(() => sessionWeight(pid) === 'usual', 'the sandbox has its usual weight', 60_000);
  });
});
