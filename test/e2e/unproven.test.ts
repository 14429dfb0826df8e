import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';
import { newHome, Platform, until } from '#test/harness/platform.ts';

test('a platform serves a model whose proof fails, says why everywhere, and forgets it when a later start proves the model', async (t) => {
  const root = await mkdtemp(path.join(os.tmpdir(), 'pie-unproven-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  const directory = path.join(root, 'model');
  await randomModel(directory, { vocabularySize: 300 }, 5);
  const settingsFile = path.join(directory, 'tokenizer_config.json');
  const settings = JSON.parse(await readFile(settingsFile, 'utf8'));
  await writeFile(
    settingsFile,
    JSON.stringify({ ...settings, chat_template: "{{ raise_exception('This template is broken.') }}" }),
  );
  const home = await newHome();
  t.after(() => rm(home, { recursive: true, force: true, maxRetries: 10 }));
  const start = () =>
    Platform.start({
      home,
      keepHome: true,
      config: `[[model]]\nname = "tiny"\nsource = "file:${directory}"\naliases = ["small"]\n`,
      env: { PIE_MODELS: path.join(root, 'cache') },
      functions: ['text-completion', 'openai-chat', 'openai-completions'],
      proves: true,
    });
  const modelsOf = async (platform: Platform) => {
    const { data } = (await (await platform.fetch('/v1/models')).json()) as {
      data: { id: string; unproven?: string; chat: boolean }[];
    };
    return data.map(({ id, unproven, chat }) => ({ id, unproven, chat }));
  };
  {
    await using platform = await start();
    await until('the model was asked', () => platform.proofs.has('tiny'));
    const reason = platform.proofs.get('tiny') ?? '';
    assert.match(reason, /chat template refused the messages: .*This template is broken/);
    assert.deepEqual(await modelsOf(platform), [
      { id: 'small', unproven: reason, chat: true },
      { id: 'tiny', unproven: reason, chat: true },
    ]);
    const one = (await (await platform.fetch('/v1/models/small')).json()) as { unproven?: string };
    assert.equal(one.unproven, reason);
    assert.equal((await platform.fetch('/readyz')).status, 200);
    const doctor = await platform.pie(['doctor']);
    assert.equal(doctor.code, 0, doctor.stdout);
    assert.match(doctor.stdout, /warn {2}model tiny: unproven: .*This template is broken/);
    assert.doesNotMatch(doctor.stdout, /model small/);
    const log = await readFile(path.join(home, 'logs', 'supervisor.log'), 'utf8');
    assert.match(log, /the model has not answered.*model=tiny.*This template is broken/);
    const { code } = await platform.pie(['invoke', 'text-completion', '--input', '{"prompt":"a","maxTokens":2}']);
    assert.equal(code, 0);
  }
  await writeFile(settingsFile, JSON.stringify(settings));
  await using platform = await start();
  await until('the model was asked', () => platform.proofs.has('tiny'));
  assert.equal(platform.proofs.get('tiny'), null);
  assert.deepEqual(await modelsOf(platform), [
    { id: 'small', unproven: undefined, chat: true },
    { id: 'tiny', unproven: undefined, chat: true },
  ]);
});
