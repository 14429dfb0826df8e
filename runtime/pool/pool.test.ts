import assert from 'node:assert/strict';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '#scheduler/testing/fixture.ts';
import { compileWorld } from '../lowering/compile.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { type TestProgram, testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { ModuleFiles, readProgram } from './artifacts.ts';
import { planFiles } from './measure.ts';
import { InstancePool, type PoolOptions } from './pool.ts';

const compiledWorld = compileWorld(recordingHost().host);
const slices = new SliceRunner();

const COUNTER = `let calls = 0;
export async function run(input) { calls++; return JSON.stringify([input, calls]); }`;

describe('a pool', () => {
  let program: TestProgram;
  let small: TestProgram;
  const pools: InstancePool[] = [];
  before(async () => {
    program = await testProgram(await testArtifact(await testComponent(COUNTER)));
    small = await testProgram(
      await testArtifact(await watComponent(callbackGuest({ run: `${RETURN_42} (i32.const 0)` }))),
    );
  });
  after(() => {
    for (const pool of pools) pool.close();
  });

  function open(options: Partial<PoolOptions> = {}): InstancePool {
    const pool = new InstancePool({ world: compiledWorld, slices, budgetBytes: 64 << 20, ...options });
    pools.push(pool);
    return pool;
  }
  const waitUntilReady = async (pool: InstancePool, count: number) => {
    for (let i = 0; i < 6000 && pool.ready() < count; i++) await sleep(5);
    assert.equal(pool.ready(), count);
  };

  it('keeps the minimum number of instances ready and replaces a taken one', async () => {
    const pool = open();
    pool.admit('f', program);
    pool.keep('f', 3);
    await waitUntilReady(pool, 3);
    const taken = pool.take('f');
    assert.equal(taken.ready, true);
    assert.equal(taken.instantiateMs, 0);
    await waitUntilReady(pool, 3);
  });

  it('reuses a returned instance in its initial state', async () => {
    const pool = open();
    pool.admit('f', program);
    const { execution } = pool.take('f');
    const first = await execution.start('a');
    assert.deepEqual(first, { kind: 'returned', ok: true, text: '["a",1]' });
    pool.giveBack('f', program, execution);
    const again = pool.take('f');
    assert.equal(again.execution, execution);
    assert.deepEqual(await again.execution.start('a'), first);
    // The pool keeps no instance of a program that was redeployed under the same key, or of a forgotten program.
    pool.giveBack('f', { ...program }, execution);
    assert.notEqual(pool.take('f').execution, execution);
    pool.forget('f');
    pool.giveBack('f', program, execution);
    assert.equal(pool.ready(), 0);
  });

  it('gives every invocation its own instance', async () => {
    const pool = open();
    pool.admit('f', program);
    pool.keep('f', 2);
    await waitUntilReady(pool, 2);
    for (let i = 0; i < 5; i++) {
      const { execution } = pool.take('f');
      execution.options = { slices, cpuLimitMs: 1000 };
      assert.deepEqual(await execution.start(`${i}`), { kind: 'returned', ok: true, text: `["${i}",1]` });
      execution.dispose();
    }
  });

  it('refills the minimum without a review', async ({ mock }) => {
    // Reviews, which would refill the pool in any case, never come: their interval does not run.
    mock.timers.enable({ apis: ['setInterval'] });
    const pool = open();
    pool.admit('f', program);
    pool.keep('f', 3);
    await waitUntilReady(pool, 3);
    // The turn that follows the last instance finds the pool full, and schedules no other turn.
    for (let turn = 0; turn < 3; turn++) await setImmediate();
    for (let i = 0; i < 3; i++) pool.take('f');
    assert.equal(pool.ready(), 0);
    await waitUntilReady(pool, 3);
  });

  it('waits for the return of an instance as long as the longest recent run took, also after shorter runs', async ({
    mock,
  }) => {
    let now = performance.now();
    mock.method(performance, 'now', () => now);
    const pool = open();
    pool.admit('f', program);
    for (const ms of [3000, ...new Array(10).fill(1100)]) {
      const { execution } = pool.take('f');
      await execution.start('a');
      now += ms;
      pool.giveBack('f', program, execution);
    }
    assert.ok(pool.take('f'));
    const readyAfter = async (ms: number) => {
      now += ms;
      pool.admit('f', program);
      for (let turn = 0; turn < 5; turn++) await setImmediate();
      return pool.ready();
    };
    // The pool waits 0.5 s plus twice the peak of the runs. The peak of 3 s has decayed to about 2.3 s, so the pool waits about 5 s.
    assert.equal(await readyAfter(3500), 0);
    assert.equal(await readyAfter(3500), 1);
  });

  it('makes an instance when none is ready', () => {
    const pool = open({ budgetBytes: 0 });
    pool.admit('f', program);
    pool.keep('f', 2);
    const { ready, instantiateMs } = pool.take('f');
    assert.equal(ready, false);
    assert.ok(instantiateMs > 0);
  });

  it('stays within its budget, and holds more instances of a small program', async () => {
    const budgetBytes = 4 << 20;
    const large = open({ budgetBytes });
    large.admit('f', program);
    large.keep('f', 256);
    const light = open({ budgetBytes });
    light.admit('f', small);
    light.keep('f', 256);
    await eventually(() => large.ready() >= 2 && light.ready() > 8, 'both pools are filled');
    // Wait until the counts stay the same.
    for (let last = -1; last !== large.ready() + light.ready(); await sleep(100)) last = large.ready() + light.ready();
    assert.ok(large.ready() >= 2 && large.ready() <= 8, `${large.ready()}`);
    assert.ok(light.ready() > large.ready(), `${light.ready()}`);
  });

  it('drops the instances of a forgotten function', async () => {
    const pool = open();
    pool.admit('f', program);
    pool.keep('f', 2);
    await waitUntilReady(pool, 2);
    pool.forget('f');
    assert.equal(pool.ready(), 0);
    assert.throws(() => pool.take('f'));
  });
});

describe('loading a program', () => {
  it('omits modules that a JavaScript inferlet never uses, and reuses the plan', async () => {
    const artifact = await testArtifact(await testComponent(COUNTER));
    const first = await testProgram(artifact);
    const again = await testProgram(artifact);
    assert.deepEqual(again.plan, first.plan);
    assert.ok(first.plan.instances.length < artifact.coreModules.length / 2);
    assert.equal(again.modules.size, new Set(first.plan.instances.map(({ module }) => module)).size);
  });

  it('adds the limits of all memories', async () => {
    const artifact = await testArtifact(await testComponent(COUNTER));
    const { plan } = await testProgram(artifact);
    const coreModules = artifact.meta.coreModules.map((entry) => ({ ...entry, memoryPages: [3, 5] }));
    const several = { ...artifact, meta: { ...artifact.meta, coreModules } };
    const { memoryLimitBytes } = await readProgram('f', several, new ModuleFiles(), async () => plan);
    assert.equal(memoryLimitBytes, plan.instances.length * (3 + 5) * 65_536);
  });

  it('sees whether the memory can grow', async () => {
    const loaded = async (run: string, pages: number) => {
      const guest = await watComponent(callbackGuest({ run: `${run} unreachable`, pages }));
      const artifact = await testArtifact(guest, 17);
      const plan = () => planFiles(artifact.directory, artifact.coreModules);
      return readProgram('f', artifact, new ModuleFiles(), plan);
    };
    const grow = '(drop (memory.grow (i32.const 1)))';
    assert.equal((await loaded('', 1)).memoryCanGrow, false, 'its code does not grow it');
    assert.equal((await loaded(grow, 1)).memoryCanGrow, true);
    assert.equal((await loaded(grow, 17)).memoryCanGrow, false, 'its limit leaves no room');
  });

  it('rejects a module that claims the hash of another module', async () => {
    const artifact = await testArtifact(await testComponent(COUNTER));
    const [first, second] = artifact.meta.coreModules;
    assert.ok(first && second && first.hash !== second.hash);
    const claimed = { ...first, hash: second.hash };
    await assert.rejects(new ModuleFiles().read(artifact.directory, claimed), /has another hash/);
  });

  it('rejects a module that is longer than its description says', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-module-'));
    try {
      await writeFile(join(directory, 'core.wasm'), '');
      await truncate(join(directory, 'core.wasm'), 2 ** 30);
      const claimed = {
        file: 'core.wasm',
        hash: '0'.repeat(64),
        bytes: 8,
        checks: 0,
        role: 'program' as const,
        memoryPages: [],
      };
      await assert.rejects(new ModuleFiles().read(directory, claimed), /is the limit/);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it('reads modules of equal content once', async () => {
    const files = new ModuleFiles();
    const [a, b] = await Promise.all(
      [COUNTER, `${COUNTER}\n// another function`].map(async (source) => {
        const artifact = await testArtifact(await testComponent(source));
        return readProgram(artifact.hash, artifact, files, () => planFiles(artifact.directory, artifact.coreModules));
      }),
    );
    const largest = a?.modules.toSorted((x, y) => y.bytes.length - x.bytes.length)[0];
    assert.ok(largest);
    assert.ok(b?.modules.some(({ bytes }) => bytes === largest.bytes));
  });
});
