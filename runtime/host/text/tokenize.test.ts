import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { compileChatTemplate, MAX_CHAT_VALUES } from '#gpu-host/models/chat-template.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { TextService } from '../../texts/service.ts';
import { MAX_TEXT_CHARACTERS } from './tokenize.ts';

describe('a tokenizing or rendering call', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  let guest: TestInferlet;
  const texts = new TextService({ maxWorkers: 1 });

  before(async () => {
    const { directory } = await pullModel('minimind2-small');
    host = await TestGpuHost.start();
    connection = await GpuHostConnection.connect(host.address);
    const tokenizer = await loadTokenizer(directory);
    const summary = connection.models.find(({ name }) => name === TEST_MODEL)!;
    guest = new TestInferlet(connection, {
      services: { texts },
      model: { tokenizer, summary: { ...summary, directory } },
    });
  });
  after(async () => {
    await guest.end();
    connection.close();
    await host.stop();
    await texts.close();
  });

  const call = async (name: string, ...args: unknown[]): Promise<string> => {
    const outcome = await guest.call<Outcome<unknown> | Promise<Outcome<unknown>>>(
      'tokenize',
      name,
      TEST_MODEL,
      ...args,
    );
    return outcome.tag === 'ok' ? 'ok' : `${outcome.val.tag}: ${outcome.val.val}`;
  };

  it('is bounded in characters, with advice in the error', async () => {
    assert.equal(await call('tokenize', 'a'.repeat(MAX_TEXT_CHARACTERS), false), 'ok');
    assert.match(await call('tokenize', 'a'.repeat(MAX_TEXT_CHARACTERS + 1), false), /^limit-exceeded: .* cut it/);
    assert.match(await call('detokenize', new Uint32Array(200_000), false), /^limit-exceeded/);
  });

  it('is bounded in messages and their characters before any of them is read', async () => {
    const userMessage = (content: string) => ({ role: 'user', content });
    assert.equal(await call('chat-template', [userMessage('hi')], true), 'ok');
    // Only the length may be read.
    const many = new Proxy([] as object[], {
      get: (_target, key) => (key === 'length' ? 1_000_000 : assert.fail(`${String(key)} of the list was read`)),
    });
    assert.match(await call('chat-template', many, true), /^limit-exceeded: .*1000000 messages; 8192 is the limit/);
    // Each message has 40,000 characters, and 4 of the role `user`.
    const long = [userMessage('a'.repeat(40_000)), userMessage('a'.repeat(40_000))];
    assert.match(await call('chat-template', long, true), /^limit-exceeded: the conversation has 80008 characters/);
    assert.match(await call('render-chat', JSON.stringify({ messages: long })), /^limit-exceeded/);
    const ofLength = (length: number) => JSON.stringify({ messages: [userMessage('hi')], other: '' }).padEnd(length);
    assert.equal(await call('render-chat', ofLength(65_536)), 'ok');
    assert.match(
      await call('render-chat', ofLength(65_537)),
      /^limit-exceeded: .* 65537 characters; 65536 is the limit/,
    );
  });

  it('is bounded in the values of its variables, which are counted before Jinja gets them', () => {
    const render = compileChatTemplate('{{ x | length }}', {});
    assert.equal(render({ x: Array.from({ length: MAX_CHAT_VALUES - 1 }, () => []) }), `${MAX_CHAT_VALUES - 1}`);
    const more = { x: Array.from({ length: MAX_CHAT_VALUES }, () => []) };
    assert.throws(() => render(more), { code: 'invalid-messages', message: /more than 32768 values/ });
  });

  it('ends at its time limit although a single step is slow', () => {
    const rows = Array.from({ length: 2000 }, (_, i) => i);
    const template =
      "{% for row in rows %}{% set text = tools | tojson %}{{ raise_exception('200 times JSON') if row == 200 }}{% endfor %}";
    const render = compileChatTemplate(template, {});
    const tools = Array.from({ length: 20_000 }, (_, i) => `${i}`);
    assert.throws(() => render({ rows, tools }), { message: /too long/ });
  });
});
