import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { world } from '#wit/generated/world.ts';
import { LaunchError } from '../lifecycle/launch.ts';
import { compileWorld } from '../lowering/compile.ts';
import { SliceRunner } from '../lowering/slice-runner.ts';
import { testComponent } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { FunctionLauncher, type FunctionLauncherOptions } from './launcher.ts';
import { InstancePool } from './pool.ts';

const { host } = recordingHost();
const compiled = compileWorld(world, host);
const slices = new SliceRunner();

describe('a launcher', () => {
  let store: string;
  let component: Uint8Array;
  const pools: InstancePool[] = [];
  before(async () => {
    store = await mkdtemp(join(tmpdir(), 'pie-launch-'));
    component = await testComponent('export async function run(input) { return JSON.stringify({ input }); }');
  });
  after(async () => {
    for (const pool of pools) pool.close();
    await rm(store, { recursive: true });
  });

  function open(options: Partial<FunctionLauncherOptions> = {}): FunctionLauncher {
    const pool = new InstancePool({ world: compiled, slices, budgetBytes: 8 << 20 });
    pools.push(pool);
    const deployed: FunctionVersion = {
      ...{ name: 'echo', version: 'v1', tenant: 'default', createdAt: 0, manifest: { name: 'echo' } },
      componentHash: createHash('sha256').update(component).digest('hex'),
      componentBytes: component.length,
    };
    return new FunctionLauncher({
      ...{ pool, store, glue: { compiled, host, slices } },
      functionOf: async (_tenant, name) => (name === 'echo' ? deployed : null),
      componentOf: async () => component,
      ...options,
    });
  }
  const request = { tenant: 'default', function: 'echo', version: 'v1', memoryMb: 16 };
  const answer = async (launcher: FunctionLauncher) => {
    const launched = await launcher.launch(request);
    launched.execution.options = { slices, cpuLimitMs: 5000 };
    const ending = await launched.execution.start('hi');
    launched.execution.dispose();
    return { ...launched, ending };
  };
  const RETURNED = { kind: 'returned', ok: true, text: '{"input":"hi"}' };

  it('builds what it has never seen, and then finds it on disk and in memory', async () => {
    const first = open();
    const cold = await answer(first);
    assert.deepEqual(cold.ending, RETURNED);
    assert.equal(cold.coldStart, true);
    assert.ok(cold.timings.buildMs > 0 && cold.timings.compileMs > 0 && cold.timings.instantiateMs > 0);
    const warm = await answer(first);
    assert.deepEqual(warm.ending, RETURNED);
    assert.deepEqual([warm.timings.buildMs, warm.timings.compileMs], [0, 0]);
    for (let i = 0; i < 6000 && pools[0]?.ready() === 0; i++) await sleep(5);
    const ready = await answer(first);
    assert.deepEqual([ready.coldStart, ready.timings.instantiateMs], [false, 0]);
    const restarted = open({ componentOf: async () => null });
    const fromDisk = await answer(restarted);
    assert.deepEqual(fromDisk.ending, RETURNED);
    assert.equal(fromDisk.timings.buildMs, 0);
    assert.ok(fromDisk.timings.compileMs > 0);
  });

  it('runs through the glue what cannot be planned', async () => {
    const empty = await mkdtemp(join(tmpdir(), 'pie-launch-'));
    try {
      const launched = await answer(open({ store: empty, planner: async () => null }));
      assert.deepEqual(launched.ending, RETURNED);
    } finally {
      await rm(empty, { recursive: true });
    }
  });

  it('says what is missing', async () => {
    const failing = async (launcher: FunctionLauncher, name = 'echo'): Promise<LaunchError> => {
      const error = await launcher.launch({ ...request, function: name }).then(
        () => null,
        (reason: unknown) => reason,
      );
      assert.ok(error instanceof LaunchError);
      return error;
    };
    const unknown = await failing(open(), 'other');
    assert.deepEqual([unknown.code, /deployed no more/.test(unknown.message)], ['artifact-unavailable', true]);
    const nowhere = join(store, 'empty');
    const gone = await failing(open({ store: nowhere, componentOf: async () => null }));
    assert.deepEqual([gone.code, /deploy the function again/.test(gone.message)], ['artifact-unavailable', true]);
    const broken = await failing(
      open({ store: nowhere, componentOf: async () => new TextEncoder().encode('nonsense') }),
    );
    assert.equal(broken.code, 'artifact-unavailable');
  });
});
