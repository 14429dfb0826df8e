import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform } from '../testing/platform.ts';
import { TEST_SANDBOXES } from '../testing/sandboxes.ts';

const TAKEN_OVER = fileURLToPath(new URL('fixtures/taken-over.ts', import.meta.url));

/**
 * Reports that it runs, then hangs its sandbox (`fixtures/taken-over.ts`), spins, computes a little again and again, sleeps, or returns.
 * Most functions of this file share this source: the platform quarantines versions, not components.
 */
const GUEST = `
  import { random, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';
  export async function run(input) {
    const { do: next } = JSON.parse(input);
    send({ tag: 'text', val: 'here' });
    await sleep(next === 'late' ? 3000 : 50).read();
    if (next === 'hang' || next === 'late') random();
    if (next === 'spin') for (;;);
    if (next === 'work') for (;;) {
      for (let i = 0; i < 100_000; i++);
      await sleep(50).read();
    }
    if (next === 'sleep') await sleep(100_000).read();
    return '"done"';
  }
`;
/** Launches the function that its input names, and returns how that function ended. */
const PARENT = `
  import { Child } from 'pie:inferlet/children@0.1.0';
  export async function run(input) {
    const child = new Child(JSON.parse(input), '{"do":"end"}');
    const { val: ending } = await child.wait().read();
    return JSON.stringify(ending.val);
  }
`;

describe('functions whose sandboxes hang or crash', () => {
  let platform: RuntimePlatform;
  let deployCount = 0;
  before(async () => {
    const sandboxes = { ...TEST_SANDBOXES, most: 16, spares: 2, main: TAKEN_OVER };
    platform = await RuntimePlatform.start({ runtime: { sandboxes } });
  });
  after(() => platform.stop());
  afterEach(() => platform.errors.splice(0));

  /** Deploys a new version: the description differs in each. */
  const deploy = (name: string, restartable = false): Promise<FunctionVersion> =>
    platform.deploy(GUEST, { name, description: `${deployCount++}`, restartable, limits: { cpuMs: 60_000 } });
  const begin = async (version: FunctionVersion, todo: string): Promise<string> => {
    const id = await platform.submit(version, { do: todo });
    for await (const { event } of platform.scheduler.events.follow(id, 0, AbortSignal.timeout(240_000))) {
      if (event === 'message') return id;
    }
    throw new Error('the invocation ended before its first message');
  };
  const endOf = async (id: string) => {
    const { events, end } = await platform.transcript(id);
    assert.equal(events.filter(({ event }) => event === 'result' || event === 'error').length, 1);
    return [end.event, end.data.code];
  };
  const attemptsOf = async (id: string) => (await platform.scheduler.invocations.get(id))?.attempts;
  const quarantinedSince = async (version: FunctionVersion) =>
    (await platform.scheduler.quarantine.quarantineTimes([version]))[0] ?? null;
  const lostEnding = ['error', 'runtime-lost'];
  const sharedSandbox = () => {
    const found = [...platform.runtime.fleet.sandboxes].find(({ tenant, alone }) => tenant === 'default' && !alone);
    assert.ok(found);
    return found;
  };
  const loneSandboxes = () => [...platform.runtime.fleet.sandboxes].filter((sandbox) => sandbox.alone);

  it('are quarantined after two losses in their own sandbox; functions that shared their sandbox restart', async () => {
    const culprit = await deploy('culprit');
    const neighbour = await deploy('neighbour', true);
    // A neighbour that spins would take a core from the sandboxes whose processor time decides this test.
    const working = await begin(neighbour, 'work');
    const { pid } = sharedSandbox().process;
    const { end } = await platform.transcript(await begin(culprit, 'hang'));
    assert.equal(end.data.code, 'runtime-lost', 'the function is not restartable');
    assert.match(end.data.message ?? '', /computed for 0\.5 s without answering/);
    await eventually(
      () => [...platform.runtime.fleet.sandboxes].every((one) => one.process.pid !== pid),
      'the sandbox is replaced',
    );
    await eventually(() => loneSandboxes().length === 1, 'the neighbour, a suspect, runs again in its own sandbox');
    assert.equal(await quarantinedSince(culprit), null, 'both functions are suspects');

    assert.deepEqual(await endOf(await begin(culprit, 'hang')), lostEnding);
    assert.equal(await quarantinedSince(culprit), null, 'one loss in its own sandbox');
    assert.equal((await platform.invoke(culprit, { do: 'end' })).end.event, 'result', 'the function still runs');
    assert.deepEqual(await endOf(await begin(culprit, 'hang')), lostEnding);
    assert.ok(await quarantinedSince(culprit), 'two losses in its own sandbox');

    await assert.rejects(platform.submit(culprit, { do: 'end' }), { code: 'quarantined' });
    assert.equal(await attemptsOf(working), 2, 'the neighbour lost its sandbox once only');
    assert.equal(await quarantinedSince(neighbour), null);
    await platform.scheduler.cancel(working, 'enough');
    assert.deepEqual(await endOf(working), ['error', 'cancelled']);
    await eventually(() => loneSandboxes().length === 0, 'the sandbox of a lone run ends with the run');

    const next = await deploy('culprit');
    assert.notEqual(next.version, culprit.version);
    assert.equal((await platform.invoke(next, { do: 'end' })).end.event, 'result', 'another version runs');
    assert.deepEqual(await platform.scheduler.quarantine.lift([culprit]), [culprit]);
    assert.equal(
      (await platform.invoke(culprit, { do: 'end' })).end.event,
      'result',
      'the version runs after the lift',
    );
  });

  it('are quarantined after three attempts of one invocation; then a parent cannot launch them either', async () => {
    const again = await deploy('again', true);
    const id = await begin(again, 'hang');
    assert.deepEqual(await endOf(id), lostEnding);
    assert.equal(await attemptsOf(id), 3, 'one attempt beside others and two in its own sandbox');
    assert.ok(await quarantinedSince(again));
    const parent = await platform.deploy(PARENT, { name: 'parent', grants: { launch: ['again'] } });
    const { end } = await platform.invoke(parent, 'again');
    assert.deepEqual([end.event, (end.data.output as { code?: string }).code], ['result', 'quarantined']);
  });

  it('are quarantined with their queued invocations, which end with the error `quarantined`', async () => {
    const { quarantine, tenants } = platform.scheduler;
    const late = await deploy('late');
    await tenants.ensure('default');
    await tenants.change('default', { suspended: true });
    const waiting = await platform.submit(late, { do: 'end' });
    for (let i = 0; i < 2; i++) await quarantine.noteLoss(waiting, true);
    await tenants.change('default', { suspended: false });
    await platform.scheduler.pokeAdmission();
    const { end } = await platform.transcript(waiting);
    assert.deepEqual([end.event, end.data.code], ['error', 'quarantined']);
    assert.match(end.data.message ?? '', /is quarantined: twice within ten minutes its sandbox crashed or stopped/);
  });

  it('are distinguished from neighbours that sleep', async () => {
    const sleeper = await deploy('sleeper');
    const waker = await deploy('waker');
    const sleeping = await begin(sleeper, 'sleep');
    assert.deepEqual(await endOf(await begin(waker, 'late')), lostEnding);
    assert.deepEqual(await endOf(sleeping), lostEnding);
    /** The stored losses of a version; null when there are none. */
    const conductOf = async ({ name, version }: FunctionVersion) =>
      JSON.parse(
        (await platform.scheduler.store.redis.hget(
          platform.scheduler.store.keys.conduct('default', name, version),
          'default',
        )) ?? 'null',
      );
    assert.ok(await conductOf(waker));
    assert.equal(await conductOf(sleeper), null);
  });

  it('are suspects when their sandbox crashes while they compute, and not when the runtime ends it', async () => {
    const crashing = await deploy('crashing');
    const id = await begin(crashing, 'spin');
    process.kill(sharedSandbox().process.pid, 'SIGSEGV');
    assert.deepEqual(await endOf(id), lostEnding);
    for (let i = 0; i < 2; i++) {
      const next = await begin(crashing, 'spin');
      const [loneSandbox] = loneSandboxes();
      assert.ok(loneSandbox);
      process.kill(loneSandbox.process.pid, 'SIGSEGV');
      assert.deepEqual(await endOf(next), lostEnding);
    }
    assert.ok(await quarantinedSince(crashing));

    const stopped = await deploy('stopped');
    const running = await begin(stopped, 'spin');
    await platform.runtime.fleet.close();
    assert.deepEqual(await endOf(running), lostEnding);
    assert.equal(
      await platform.scheduler.store.redis.exists(
        platform.scheduler.store.keys.conduct('default', 'stopped', stopped.version),
      ),
      0,
    );
  });
});
