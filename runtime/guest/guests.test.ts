import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { FromSandbox } from '../fleet/messages.ts';
import { compileWorld } from '../lowering/compile.ts';
import { ModuleFiles, readProgram } from '../pool/artifacts.ts';
import { planFiles } from '../pool/plan-files.ts';
import { testArtifact } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { Guests } from './guests.ts';

const INSTANCES = 20;

it('a sandbox makes one instance in each turn of the event loop, so that it answers between instances', async () => {
  const artifact = await testArtifact(await watComponent(callbackGuest({ run: `${RETURN_42} (i32.const 0)` })));
  const planner = () => planFiles(artifact.directory, artifact.coreModules);
  const { key, plan, modules } = await readProgram('f', artifact, new ModuleFiles(), planner);

  let turn = 0;
  let last = -1;
  const madeAt: number[] = [];
  const done = Promise.withResolvers<void>();
  const tell = (message: FromSandbox) => {
    assert.equal(message.kind, 'prepared');
    madeAt.push(turn);
    if (madeAt.length === INSTANCES) done.resolve();
  };
  const wholes: number[] = [];
  const compileWhole = (bytes: Uint8Array<ArrayBuffer>) => {
    wholes.push(bytes.length);
    return WebAssembly.compile(bytes);
  };
  const guests = new Guests({ world: compileWorld(recordingHost().host), poolBytes: 0, tell, compileWhole });
  const count = () => {
    turn++;
    if (madeAt.length < INSTANCES) setImmediate(count);
  };

  for (const [i, { hash, bytes }] of modules.entries())
    guests.take({ kind: 'module', hash, whole: i === 0 }, bytes as Uint8Array<ArrayBuffer>);
  const sent = modules.map(({ file, hash }) => ({ file, hash }));
  guests.take({ kind: 'program', key, plan, modules: sent }, new Uint8Array());
  for (let instance = 1; instance <= INSTANCES; instance++)
    guests.take({ kind: 'prepare', instance, key }, new Uint8Array());
  setImmediate(count);
  await done.promise;
  assert.deepEqual(wholes, [modules[0]?.bytes.length]);
  for (const at of madeAt) {
    assert.ok(at > last, `instances were made in the turns ${madeAt.join(', ')}`);
    last = at;
  }
});
