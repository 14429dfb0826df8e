import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { importedInterfaces } from '#scheduler/functions/component-imports.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import { checkWorld } from './build/artifact/world.ts';
import { testComponent } from './testing/components.ts';
import { DEADLINE_MS, RuntimePlatform, type Transcript } from './testing/platform.ts';

/** Sends the name of its version several times, then returns it. */
const TICKER = `import { functionVersion, sleep } from 'pie:inferlet/runtime@0.1.0';
import { send } from 'pie:inferlet/session@0.1.0';
export async function run(input) {
  const { ticks, everyMs } = JSON.parse(input);
  for (let tick = 0; tick < ticks; tick++) {
    send({ tag: 'text', val: functionVersion() + ' ' + tick });
    await sleep(everyMs).read();
  }
  return JSON.stringify(functionVersion());
}`;
/** Waits for a message of its client, then launches the function `family`. */
const FAMILY = `import { Child } from 'pie:inferlet/children@0.1.0';
import { receive } from 'pie:inferlet/session@0.1.0';
export async function run(input) {
  if (JSON.parse(input).child) return '"child"';
  await receive().read();
  const child = new Child('family', '{"child":true}');
  const started = await child.started().read();
  if (started.tag === 'err') return JSON.stringify(started.val.tag);
  await child.wait().read();
  return '"launched"';
}`;
const TICKS = 6;

describe('under running streams,', () => {
  let platform: RuntimePlatform;
  let component: Uint8Array;
  before(async () => {
    platform = await RuntimePlatform.start();
    component = await testComponent(TICKER);
  });
  after(() => platform.stop());

  const deploy = (description: string, min = 0, name = 'ticker'): Promise<FunctionVersion> =>
    platform.deploy(component, { name, description, pool: { min } });
  /** Resolves a function by its name and submits an invocation, as the gateway does. */
  async function invoke(name: string, random?: number, ticks = TICKS): Promise<{ id: string; version: string }> {
    const found = await platform.scheduler.functions.resolve('default', name, '', random);
    assert.ok(found, `there is no ${name}`);
    const id = randomUUID();
    await platform.scheduler.submit({
      id,
      tenant: 'default',
      function: name,
      version: found.version,
      functionOwner: ownerOf(found),
      submittedAt: Date.now(),
      deadlineMs: DEADLINE_MS,
      restartable: false,
      input: JSON.stringify({ ticks, everyMs: 40 }),
      limits: resolveLimits(found.manifest),
    });
    return { id, version: found.version };
  }
  async function untilRunning(id: string): Promise<void> {
    for (const until = Date.now() + DEADLINE_MS; Date.now() < until; await sleep(10)) {
      if ((await platform.scheduler.invocations.get(id))?.status === 'running') return;
    }
    assert.fail(`${id} does not run`);
  }
  const assertWhole = ({ messages, end }: Transcript, version: string) => {
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    assert.equal(end.data.output, version);
    assert.deepEqual(
      messages,
      Array.from({ length: TICKS }, (_, tick) => `${version} ${tick}`),
    );
  };

  // This test comes first, because the pools of functions that ran take minutes to shrink.
  it('a runtime keeps instances of the versions that aliases serve, and releases others', async () => {
    const { fleet } = platform.runtime;
    const untilReady = async (least: number, most = least) => {
      const fits = () => least <= fleet.readyInstances && fleet.readyInstances <= most;
      for (const until = Date.now() + DEADLINE_MS; !fits() && Date.now() < until; ) await sleep(20);
      assert.ok(fits(), `${fleet.readyInstances} instances, not ${least} to ${most}`);
    };
    await untilReady(0);
    await platform.deploy(component, { name: 'served', pool: { min: 3 }, limits: { memoryMb: 32 } });
    await untilReady(3);
    const outcome = await platform.scheduler.deployments.deploy({
      tenant: 'other',
      component,
      manifest: { name: 'served', pool: { min: 2 }, limits: { memoryMb: 48 } },
    });
    assert.ok(outcome.ok);
    await untilReady(5);
    await platform.deploy(component, { name: 'served', limits: { memoryMb: 40 } });
    // One more instance stays ready if the build used one a moment ago.
    await untilReady(2, 3);
    await platform.scheduler.releases.rollback('default', 'served', 'live', { by: 'key_test' });
    await untilReady(5);
    await platform.scheduler.removals.removeFunction('other', 'served');
    // Here, too, one more may stay; the fleet's tests cover the end of idle sandboxes.
    await untilReady(3, 4);
    await platform.scheduler.removals.removeFunction('default', 'served');
  });

  it('switches, splits, rollbacks and removals break no stream, and each stream comes from one version', async () => {
    const { releases, removals, functions, blobs } = platform.scheduler;
    const streams: Promise<void>[] = [];
    const start = async (count: number, random?: (i: number) => number) => {
      const versions: string[] = [];
      for (let i = 0; i < count; i++) {
        const { id, version } = await invoke('ticker', random?.(i));
        versions.push(version);
        streams.push(platform.transcript(id).then((transcript) => assertWhole(transcript, version)));
      }
      return versions;
    };
    const first = await deploy('one');
    assert.deepEqual(new Set(await start(6)), new Set([first.version]));
    const second = await deploy('two');
    assert.deepEqual(new Set(await start(6)), new Set([second.version]), 'the new version from the switch on');
    const shares = [
      { version: second.version, weight: 75 },
      { version: first.version, weight: 25 },
    ];
    await releases.set('default', 'ticker', 'live', { shares, by: 'key_test' });
    const drawn = await start(8, (i) => i / 8);
    assert.equal(drawn.filter((version) => version === second.version).length, 6);
    const back = await releases.rollback('default', 'ticker', 'live', { by: 'key_test' });
    assert.ok(back.ok);
    assert.deepEqual(new Set(await start(2)), new Set([second.version]));
    const lasting = await invoke('ticker', undefined, 400);
    const runningStreams = await removals.removeFunction('default', 'ticker');
    assert.ok((runningStreams?.length ?? 0) > 0, 'streams are running');
    assert.equal(await functions.resolve('default', 'ticker'), null);
    await platform.scheduler.cancel(lasting.id, 'enough');
    await platform.transcript(lasting.id);
    await Promise.all(streams);
    await removals.sweep();
    assert.deepEqual(await removals.draining('default', 'ticker'), []);
    assert.ok(!(await blobs.has(first.componentHash)), 'no version is left');
  });

  it('only running invocations of a removed function may still launch it', async () => {
    const family = await testComponent(FAMILY);
    await platform.deploy(family, { name: 'family', grants: { launch: ['family'] } });
    await platform.deploy(family, { name: 'stranger', grants: { launch: ['family'] } });
    const parents = await Promise.all(['family', 'stranger'].map((name) => invoke(name)));
    const transcripts = parents.map(({ id }) => platform.transcript(id));
    for (const { id } of parents) await untilRunning(id);
    await platform.scheduler.removals.removeFunction('default', 'family');
    for (const { id } of parents) await platform.scheduler.inbox.push(id, { text: 'go' });
    const [familyTranscript, strangerTranscript] = await Promise.all(transcripts);
    assert.equal(familyTranscript?.end.data.output, 'launched');
    assert.match(String(strangerTranscript?.end.data.output), /not-found/);
    await platform.scheduler.removals.sweep();
    assert.deepEqual(await platform.scheduler.removals.draining('default', 'family'), []);
    await platform.scheduler.removals.removeFunction('default', 'stranger');
  });

  it('a removal with `now` cancels running invocations', async () => {
    await deploy('long', 0, 'cancelled');
    const { id } = await invoke('cancelled', 0, 400);
    const transcript = platform.transcript(id);
    await untilRunning(id);
    await platform.scheduler.removals.removeFunction('default', 'cancelled', true);
    assert.equal((await transcript).end.data.code, 'cancelled');
  });

  it('a deploy measures cold and warm starts and reads the same imports as the build', async () => {
    const version = await platform.deploy(component, { name: 'measured', limits: { memoryMb: 24 } });
    const { coldStartMs, warmStartMs, instanceBytes, poolBytes } = version.build as Record<string, number>;
    assert.ok(coldStartMs! > 0 && warmStartMs! >= 0, `${coldStartMs} ${warmStartMs}`);
    assert.ok(instanceBytes! > 0 && poolBytes! > 0);
    const asBuilt = (await checkWorld(component)).map((name) => /\/([^@]*)@/.exec(name)?.[1]);
    assert.deepEqual(new Set(importedInterfaces(component)), new Set(asBuilt));
    assert.deepEqual(platform.errors, []);
  });
});
