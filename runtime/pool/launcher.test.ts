import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { SharedThread } from '../channel/shared-thread.ts';
import { Fleet } from '../fleet/fleet.ts';
import { startSandbox } from '../fleet/process.ts';
import { LaunchError } from '../lifecycle/launch.ts';
import { machineLayers } from '../sandboxes/index.ts';
import { testComponent } from '../testing/components.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { FunctionLauncher, type FunctionLauncherOptions } from './launcher.ts';

const { host } = recordingHost();
const layers = await machineLayers();

const versionOf = (bytes: Uint8Array): FunctionVersion => ({
  name: 'echo',
  version: 'v1',
  tenant: 'default',
  createdAt: 0,
  manifest: { name: 'echo' },
  componentHash: createHash('sha256').update(bytes).digest('hex'),
  componentBytes: bytes.length,
});

/** A component whose core module exports `run` under a name that no toolchain uses. */
const RENAMED_RUN = `(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "go") (param i32 i32) (result i32) (i32.const 16)))
  (core instance $i (instantiate $m))
  (type $run (func async (param "input" string) (result (result string (error string)))))
  (func $go (type $run) (canon lift (core func $i "go") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (export "run" (func $go)))`;

describe('a launcher', () => {
  let store: string;
  let component: Uint8Array;
  const fleets: Fleet[] = [];
  before(async () => {
    store = await mkdtemp(join(tmpdir(), 'pie-launch-'));
    component = await testComponent('export async function run(input) { return JSON.stringify({ input }); }');
  });
  after(async () => {
    await Promise.all(fleets.map((fleet) => fleet.close()));
    await rm(store, { recursive: true });
  });

  function open(options: Partial<FunctionLauncherOptions> = {}): FunctionLauncher {
    const fleet = new Fleet({
      policy: { most: 2, spares: 1, idleMs: 60_000 },
      memoryMb: 512,
      start: (events) => startSandbox({ layers, host, thread: new SharedThread(), memoryMb: 512, poolMb: 8 }, events),
      deviceBusy: () => false,
      log: silentLog,
    });
    fleets.push(fleet);
    return new FunctionLauncher({
      fleet,
      store,
      functionOf: async (_tenant, name) => (name === 'echo' ? versionOf(component) : null),
      componentOf: async () => component,
      ...options,
    });
  }
  const request = { tenant: 'default', function: 'echo', version: 'v1', memoryMb: 16, invocation: 'inv' };
  const answer = async (launcher: FunctionLauncher) => {
    const launched = await launcher.launch(request);
    const { inferlet } = new TestInferlet(null);
    const { ending } = await launched.run.start(inferlet, { input: 'hi', cpuLimitMs: 5000 });
    launched.run.dispose();
    return { ...launched, ending };
  };
  const RETURNED = { kind: 'returned', ok: true, text: '{"input":"hi"}' };

  it('builds a new component, and finds it in memory and on disk later', async () => {
    const first = open();
    const cold = await answer(first);
    assert.deepEqual(cold.ending, RETURNED);
    // On a busy machine an instance may be ready before the launch asks for it: `compileMs` and `instantiateMs` may be 0.
    assert.ok(cold.timings.buildMs > 0);
    const warm = await answer(first);
    assert.deepEqual(warm.ending, RETURNED);
    assert.deepEqual([warm.timings.buildMs, warm.timings.compileMs], [0, 0]);
    await eventually(() => (fleets[0]?.readyInstances ?? 0) > 0, 'an instance is ready');
    const ready = await answer(first);
    assert.deepEqual([ready.coldStart, ready.timings.instantiateMs], [false, 0]);
    const restarted = open({ componentOf: async () => null });
    const fromDisk = await answer(restarted);
    assert.deepEqual(fromDisk.ending, RETURNED);
    assert.equal(fromDisk.timings.buildMs, 0);
  });

  it('refuses a component that cannot be planned, with the reason', async () => {
    const renamed = await parse(RENAMED_RUN);
    const outcome = await open().build(renamed, 64, AbortSignal.timeout(240_000));
    assert.ok(!outcome.ok);
    assert.equal(outcome.code, 'unsupported-component');
    assert.match(outcome.message, /cannot be run here: no core module exports run/);
    assert.match(outcome.hint, /one core module that exports `run`/);
    const launcher = open({ functionOf: async () => versionOf(renamed), componentOf: async () => renamed });
    await assert.rejects(
      launcher.launch(request),
      (error) =>
        error instanceof LaunchError && error.code === 'artifact-unavailable' && /no core module/.test(error.message),
    );
  });

  it('reports an unknown function, and a missing, an unreadable and a broken component', async () => {
    const launchFailure = async (launcher: FunctionLauncher, name = 'echo'): Promise<LaunchError> => {
      const error = await launcher.launch({ ...request, function: name }).then(
        () => null,
        (reason: unknown) => reason,
      );
      assert.ok(error instanceof LaunchError);
      return error;
    };
    const unknown = await launchFailure(open(), 'other');
    assert.deepEqual([unknown.code, /no longer deployed/.test(unknown.message)], ['artifact-unavailable', true]);
    const emptyStore = join(store, 'empty');
    const missing = await launchFailure(open({ store: emptyStore, componentOf: async () => null }));
    assert.deepEqual([missing.code, /deploy the function again/.test(missing.message)], ['artifact-unavailable', true]);
    const fault = new Error('no file /var/lib/pie/blobs/component');
    const unreadable = await launchFailure(open({ store: emptyStore, componentOf: () => Promise.reject(fault) }));
    // The tenant learns no path of the host.
    assert.match(unreadable.message, /^The component could not be fetched: .*no file component$/);
    const broken = await launchFailure(
      open({ store: emptyStore, componentOf: async () => new TextEncoder().encode('nonsense') }),
    );
    assert.equal(broken.code, 'artifact-unavailable');
  });
});
