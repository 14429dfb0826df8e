import assert from 'node:assert/strict';
import { it } from 'node:test';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { SharedThread } from '../channel/shared-thread.ts';
import { Guests } from '../guest/guests.ts';
import { compileWorld } from '../lowering/compile.ts';
import { ModuleFiles, readProgram } from '../pool/artifacts.ts';
import { planFiles } from '../pool/measure.ts';
import { machineLayers } from '../sandboxes/index.ts';
import { testArtifact } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import type { FromSandbox, ToSandbox } from './messages.ts';
import { startSandbox } from './process.ts';
import { type ProcessEvents, Sandbox, type SandboxProcess, type StoredProgram } from './sandbox.ts';

const IGNORED_EVENTS = { busy: () => undefined, idle: () => undefined, lost: async () => undefined };

const tokenizerOf = async (name: string) => loadTokenizer((await pullModel(name)).directory);

it('sends token tables again when another model takes the name of the earlier one', async () => {
  const [stories, minimind] = [await tokenizerOf('stories15m'), await tokenizerOf('minimind2-small')];
  const sent: ToSandbox['kind'][] = [];
  let answer: (message: FromSandbox) => void = () => assert.fail('the sandbox does not listen yet');
  const guests = new Guests({
    world: compileWorld(recordingHost().host),
    poolBytes: 0,
    tell: (message) => answer(message),
    isBehind: () => false,
    compileWhole: (bytes) => WebAssembly.compile(bytes),
  });
  const process: Partial<SandboxProcess> = {
    tell: (message, body = new Uint8Array()) => {
      sent.push(message.kind);
      // A real sandbox answers asynchronously.
      setImmediate(() => guests.take(message, new Uint8Array(body)));
    },
  };
  const sandbox = new Sandbox((events) => {
    answer = (message) => events.message(message);
    return process as SandboxProcess;
  }, IGNORED_EVENTS);

  const assertDecodes = (tokenizer: Tokenizer) => {
    const tokens = tokenizer.encode('Once upon a time, there was a model.');
    assert.equal(guests.vocabulary('main')?.decode(tokens), tokenizer.decode(tokens));
  };
  await Promise.all([stories, stories].map((tokenizer) => sandbox.vocabulary('main', tokenizer)));
  assertDecodes(stories);
  // The GPU host has started again with another model.
  await sandbox.vocabulary('main', minimind);
  assertDecodes(minimind);
  await sandbox.vocabulary('main', minimind);
  assert.deepEqual(sent, ['vocabulary', 'vocabulary']);
  const [toStories, toMinimind] = [sandbox.vocabulary('main', stories), sandbox.vocabulary('main', minimind)];
  await toStories;
  assertDecodes(stories);
  await toMinimind;
  assertDecodes(minimind);
});

/** Makes a distinct and larger program: each module gets a custom section named `p` with `bytes` zeros, which has no effect. */
function enlarged({ key, modules, ...program }: StoredProgram, number: number, bytes: number): StoredProgram {
  // The name is written as its length, 1, and its character.
  const name = [1, 0x70];
  const length = name.length + bytes;
  // LEB128: seven bits in each byte, and the highest bit in all bytes but the last.
  const lengthBytes = [0, 7, 14, 21].map((shift) => ((length >> shift) & 0x7f) | (shift < 21 ? 0x80 : 0));
  const customSectionId = 0;
  const section = Buffer.concat([Buffer.from([customSectionId, ...lengthBytes, ...name]), Buffer.alloc(bytes)]);
  return {
    ...program,
    key: `${key}-${number}`,
    modules: modules.map((module) => ({
      ...module,
      hash: `${module.hash}-${number}`,
      bytes: Buffer.concat([module.bytes, section]),
    })),
  };
}

/** Starts a real sandbox, and makes nine programs with 30 MiB each. */
async function withLargePrograms(lost: (invocations: readonly string[]) => void = () => undefined) {
  const artifact = await testArtifact(await watComponent(callbackGuest({ run: `${RETURN_42} (i32.const 0)` })));
  const plan = () => planFiles(artifact.directory, artifact.coreModules);
  const program = await readProgram('large', artifact, new ModuleFiles(), plan);
  const options = { layers: await machineLayers(), host: recordingHost().host, memoryMb: 2048, poolMb: 8 };
  const start = (events: ProcessEvents) => startSandbox({ ...options, thread: new SharedThread() }, events);
  const sandbox = new Sandbox(start, { ...IGNORED_EVENTS, lost: async (invocations) => lost(invocations) });
  await sandbox.ready;
  return { sandbox, programs: Array.from({ length: 9 }, (_, i) => enlarged(program, i, 30 << 20)) };
}

it('takes nine launches at once whose programs have 30 MiB each', { timeout: 180_000 }, async () => {
  const { sandbox, programs } = await withLargePrograms();
  try {
    const keeping = sandbox.keep(programs[8] ?? assert.fail(), 1);
    const launches = programs.map((program, i) => sandbox.prepare(program, `inv-${i}`));
    assert.equal(sandbox.runs, 9);
    for (const { run } of await Promise.all(launches)) run.dispose();
    await keeping;
    assert.equal(sandbox.runs, 0);
  } finally {
    sandbox.process.retire('the test is over');
    await sandbox.ended;
  }
});

it('suspects no launch that still waits for room when the sandbox dies', { timeout: 180_000 }, async () => {
  const suspects: string[] = [];
  const { sandbox, programs } = await withLargePrograms((invocations) => suspects.push(...invocations));
  sandbox.tenant = 'default';
  const launches = programs.map((program, i) => sandbox.prepare(program, `inv-${i}`));
  await new Promise(setImmediate);
  sandbox.process.kill('the test kills it');
  for (const outcome of await Promise.allSettled(launches)) {
    assert.equal(outcome.status === 'rejected' && outcome.reason.code, 'runtime-lost');
  }
  // A launch is sent while less than 32 MiB wait for the sandbox. The first two launches, of 30 MiB each, are sent; the others wait for room.
  assert.deepEqual(suspects, ['inv-0', 'inv-1']);
});
