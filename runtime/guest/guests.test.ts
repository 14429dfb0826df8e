import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { FromSandbox } from '../fleet/messages.ts';
import { compileWorld } from '../lowering/compile.ts';
import { ModuleFiles, readProgram } from '../pool/artifacts.ts';
import { planFiles } from '../pool/measure.ts';
import { testArtifact } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { Guests } from './guests.ts';

const INSTANCES = 20;

interface LaunchRecord {
  /** Turns of the event loop in which the instances were made. */
  readonly turns: readonly number[];
  /** Sizes of the modules that were compiled whole: all their functions before any call. */
  readonly wholes: readonly number[];
  /** Size of the program's first module. */
  readonly moduleBytes: number | undefined;
}

/** Launches `INSTANCES` instances at once in a sandbox. `isBehind` tells the sandbox whether frames wait for its thread. */
async function launchAll(isBehind: () => boolean): Promise<LaunchRecord> {
  const artifact = await testArtifact(await watComponent(callbackGuest({ run: `${RETURN_42} (i32.const 0)` })));
  const planner = () => planFiles(artifact.directory, artifact.coreModules);
  const { key, plan, modules } = await readProgram('f', artifact, new ModuleFiles(), planner);

  let turn = 0;
  const turns: number[] = [];
  const done = Promise.withResolvers<void>();
  const tell = (message: FromSandbox) => {
    assert.equal(message.kind, 'prepared');
    turns.push(turn);
    if (turns.length === INSTANCES) done.resolve();
  };
  const wholes: number[] = [];
  const compileWhole = (bytes: Uint8Array<ArrayBuffer>) => {
    wholes.push(bytes.length);
    return WebAssembly.compile(bytes);
  };
  const guests = new Guests({
    world: compileWorld(recordingHost().host),
    poolBytes: 0,
    tell,
    isBehind,
    compileWhole,
  });
  const countTurns = () => {
    turn++;
    if (turns.length < INSTANCES) setImmediate(countTurns);
  };

  for (const [i, { hash, bytes }] of modules.entries())
    guests.take({ kind: 'module', hash, whole: i === 0 }, bytes as Uint8Array<ArrayBuffer>);
  const moduleNames = modules.map(({ file, hash }) => ({ file, hash }));
  guests.take({ kind: 'program', key, plan, modules: moduleNames }, new Uint8Array());
  for (let instance = 1; instance <= INSTANCES; instance++)
    guests.take({ kind: 'prepare', instance, key }, new Uint8Array());
  setImmediate(countTurns);
  await done.promise;
  return { turns, wholes, moduleBytes: modules[0]?.bytes.length };
}

it('a sandbox makes one instance in each turn of the event loop, so that it answers between instances', async () => {
  const { turns, wholes, moduleBytes } = await launchAll(() => false);
  // Only the first module is sent with `whole`.
  assert.deepEqual(wholes, [moduleBytes]);
  for (const [i, turn] of turns.entries()) {
    assert.ok(i === 0 || turn > (turns[i - 1] ?? 0), `instances were made in the turns ${turns.join(', ')}`);
  }
});

it('a sandbox holds launches back while frames wait for its thread, but holds none back for ever', async () => {
  let behindChecks = 0;
  const { turns } = await launchAll(() => {
    behindChecks++;
    return true;
  });
  assert.equal(turns.length, INSTANCES);
  assert.ok(behindChecks > INSTANCES, `${behindChecks} checks for waiting frames at ${INSTANCES} launches`);
});
