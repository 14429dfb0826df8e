import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { GatewayPlatform } from '../testing/platform.ts';
import { InvocationError, startPlatform, TestInferlet, type TestPlatform } from './testing.ts';

const TALKER = `import { receive, send } from 'pie:inferlet/session@0.1.0';
export async function run(text) {
  const { act } = JSON.parse(text);
  console.log('about to ' + act);
  if (act === 'fail') throw new Error('it broke');
  const heard = [];
  for (;;) {
    const { tag, val } = await receive().read();
    if (tag === 'err') return JSON.stringify({ heard });
    heard.push(val.val);
    send({ tag: 'text', val: 'you said ' + val.val });
  }
}`;

describe('pie/testing', () => {
  let folder = '';
  let platform: TestPlatform;
  before(async () => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'pie-testing-'));
    writeFileSync(path.join(folder, 'talker.js'), TALKER);
    platform = await startPlatform({ onProgress: () => undefined });
  });
  after(async () => {
    await platform?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it('returns the output, messages and logs of an inferlet', async () => {
    const talker = await platform.deploy(path.join(folder, 'talker.js'));
    const seen: string[] = [];
    const run = await talker.invoke({ act: 'talk' }, { send: ['a', 'b'], onMessage: (text) => seen.push(text) });
    assert.deepEqual(run.output, { heard: ['a', 'b'] });
    assert.deepEqual(run.messages, ['you said a', 'you said b']);
    assert.deepEqual(seen, run.messages);
    assert.deepEqual(
      run.logs.map(({ message }) => message),
      ['about to talk'],
    );
    assert.equal(typeof run.usage.cpuMs, 'number');
  });

  it('returns the messages of the last attempt, and those before a question', async () => {
    const gateway = await GatewayPlatform.start();
    try {
      await gateway.register({ name: 'restarted', restartable: true });
      const client = gateway.client();
      const running = new TestInferlet(client, 'restarted').invoke();
      const id = await gateway.submitted('restarted');
      const asking = await gateway.attempt(id);
      await asking.start();
      await asking.say('asked');
      const question = { text: 'Go on?', schema: {}, timeoutMs: 60_000, state: '' };
      // The third event, after `start` and the message.
      const seq = 3;
      await gateway.scheduler.questions.ask({ id, tenant: 'default' }, asking.epoch, seq, question, null);
      await client.answer(id, true);
      const lost = await gateway.attempt(id);
      await lost.start();
      await lost.say('a', 'b');
      await lost.giveUp('runtime-lost', {});
      const last = await gateway.attempt(id);
      await last.start(2);
      await last.say('a', 'b', 'c');
      await last.succeed(null);
      assert.deepEqual((await running).messages, ['asked', 'a', 'b', 'c']);
    } finally {
      await gateway.stop();
    }
  });

  it('throws the error that ended the inferlet', async () => {
    const talker = await platform.deploy(path.join(folder, 'talker.js'), { manifest: { name: 'breaker' } });
    assert.equal(talker.name, 'breaker');
    await assert.rejects(talker.invoke({ act: 'fail' }), (error) => {
      assert.ok(error instanceof InvocationError);
      assert.equal(error.code, 'inferlet-error');
      assert.match(error.message, /it broke/);
      assert.equal(error.logs[0]?.message, 'about to fail');
      return true;
    });
  });

  it('reports a message that the gateway refuses', { timeout: 240_000 }, async () => {
    const talker = await platform.deploy(path.join(folder, 'talker.js'));
    const send = ['x'.repeat(2 ** 21)];
    await assert.rejects(talker.invoke({ act: 'talk' }, { send }), { name: 'PieError', status: 413 });
  });

  it('reports the place of a compile error, and a source that does not exist', async () => {
    writeFileSync(path.join(folder, 'broken.ts'), 'export const run = ;');
    await assert.rejects(
      platform.deploy(path.join(folder, 'broken.ts')),
      /broken\.ts:1:20: Unexpected[\s\S]*what to do/,
    );
    await assert.rejects(platform.deploy(path.join(folder, 'none')), /does not exist[\s\S]*what to do/);
  });

  it('startPlatform reports a program that this machine lacks, and a model that does not exist', async () => {
    const { PATH } = process.env;
    process.env.PATH = folder;
    try {
      await assert.rejects(startPlatform({ onProgress: () => undefined }), /redis-server is missing[\s\S]*REDIS_URL/);
    } finally {
      process.env.PATH = PATH;
    }
    await assert.rejects(
      startPlatform({ models: ['file:/no/such/model'], onProgress: () => undefined }),
      /file:\/no\/such\/model could not be pulled:\s+error: \/no\/such\/model does not exist/,
    );
  });

  it('removes its home and stops its server on stop', async () => {
    const { home, url } = platform;
    assert.ok(existsSync(home));
    await fetch(`${url}/readyz`);
    await platform.stop();
    assert.equal(existsSync(home), false);
    await assert.rejects(fetch(`${url}/readyz`));
  });
});
