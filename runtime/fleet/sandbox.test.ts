import assert from 'node:assert/strict';
import { it } from 'node:test';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { Guests } from '../guest/guests.ts';
import { compileWorld } from '../lowering/compile.ts';
import { recordingHost } from '../testing/recording-host.ts';
import type { FromSandbox, ToSandbox } from './messages.ts';
import { Sandbox, type SandboxProcess } from './sandbox.ts';

const tokenizerOf = async (name: string) => loadTokenizer((await pullModel(name)).directory);

it('sends the token tables of a model again when another model has its name', async () => {
  const [stories, minimind] = [await tokenizerOf('stories15m'), await tokenizerOf('minimind2-small')];
  const sent: ToSandbox['kind'][] = [];
  let answer: (message: FromSandbox) => void = () => assert.fail('the sandbox does not listen yet');
  const guests = new Guests({
    ...{ world: compileWorld(recordingHost().host), poolBytes: 0 },
    tell: (message) => answer(message),
    isBehind: () => false,
    compileWhole: (bytes) => WebAssembly.compile(bytes),
  });
  const process: Partial<SandboxProcess> = {
    tell: (message, body = new Uint8Array()) => {
      sent.push(message.kind);
      // A sandbox answers later.
      setImmediate(() => guests.take(message, new Uint8Array(body)));
    },
  };
  const sandbox = new Sandbox(
    (events) => {
      answer = (message) => events.message(message);
      return process as SandboxProcess;
    },
    { busy: () => undefined, idle: () => undefined, lost: async () => undefined },
  );

  const decodes = (tokenizer: Tokenizer) => {
    const tokens = tokenizer.encode('Once upon a time, there was a model.');
    assert.equal(guests.vocabulary('main')?.decode(tokens), tokenizer.decode(tokens));
  };
  await Promise.all([stories, stories].map((tokenizer) => sandbox.vocabulary('main', tokenizer)));
  decodes(stories);
  // The GPU host has started again with another model.
  await sandbox.vocabulary('main', minimind);
  decodes(minimind);
  await sandbox.vocabulary('main', minimind);
  assert.deepEqual(sent, ['vocabulary', 'vocabulary']);
  const [there, back] = [sandbox.vocabulary('main', stories), sandbox.vocabulary('main', minimind)];
  await there;
  decodes(stories);
  await back;
  decodes(minimind);
});
