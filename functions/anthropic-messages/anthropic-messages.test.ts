import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import Anthropic, { BadRequestError } from '@anthropic-ai/sdk';
import { CHAT, deployFunction, functionsPlatform } from '#test/harness/functions.ts';

const CALL = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Rome' } };
const RESULT = { type: 'tool_result', tool_use_id: 'toolu_1', content: 'Sunny' };
const WEATHER = { name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } };
const user = (content: unknown) => ({ role: 'user', content });
const assistant = (content: unknown) => ({ role: 'assistant', content });
const text = (content: string, more: object = {}) => ({ type: 'text', text: content, ...more });

let client: Anthropic;
before(async () => {
  const platform = await functionsPlatform();
  await deployFunction('anthropic-messages');
  client = new Anthropic({ baseURL: platform.url, apiKey: platform.apiKey, maxRetries: 0 });
});

describe('anthropic-messages', () => {
  const count = async (...messages: object[]): Promise<number> =>
    (await client.messages.countTokens({ model: CHAT, messages: messages as Anthropic.MessageParam[] })).input_tokens;
  const ask = (more: object): Promise<Anthropic.Message> => {
    // Parameters that newer types of the client lack, such as `temperature`, are sent all the same.
    const request = { model: CHAT, max_tokens: 8, temperature: 0, messages: [], ...more };
    return client.messages.create(request);
  };

  it('reads equal conversations in different forms alike', async () => {
    for (const forms of [
      [[user('Hi there')], [user([text('Hi there', { cache_control: { type: 'ephemeral' } })])]],
      [[user('One\nTwo')], [user('One'), user('Two')], [user([text('One'), text('Two')])]],
      [
        [user('Hi'), assistant([CALL]), user([RESULT])],
        [user('Hi'), assistant([CALL]), user([{ ...RESULT, content: [text('Sunny')], is_error: false }])],
        [user('Hi'), assistant([{ type: 'redacted_thinking', data: 'x' }, CALL]), user([RESULT])],
        [
          user('Hi'),
          assistant([{ type: 'server_tool_use', id: 's', name: 'web_search', input: {} }]),
          assistant([{ type: 'web_search_tool_result', tool_use_id: 's', content: [] }, CALL]),
          user([RESULT]),
        ],
      ],
      [
        [user('Sky\nBlue')],
        [user([{ type: 'document', title: 'Sky', source: { type: 'text', media_type: 'text/plain', data: 'Blue' } }])],
      ],
    ]) {
      const [first, ...others] = await Promise.all(forms.map((messages) => count(...messages)));
      for (const other of others) assert.equal(other, first, JSON.stringify(forms));
    }
    const plain = [user('Hi'), assistant([CALL]), user([RESULT])];
    const failed = [user('Hi'), assistant([CALL]), user([{ ...RESULT, is_error: true }])];
    assert.ok((await count(...failed)) > (await count(...plain)), 'a failed call is marked');
    const system = (value: Anthropic.MessageCountTokensParams['system']) =>
      client.messages.countTokens({
        model: CHAT,
        messages: [{ role: 'user', content: 'Hi' }],
        ...(value && { system: value }),
      });
    const [none, one, blocks] = await Promise.all([
      system(undefined),
      system('Be brief.\nBe kind.'),
      system([
        { type: 'text', text: 'Be brief.' },
        { type: 'text', text: 'Be kind.' },
      ]),
    ]);
    assert.ok(one.input_tokens > none.input_tokens);
    assert.equal(one.input_tokens, blocks.input_tokens);
  });

  it('continues the last turn of the assistant', async () => {
    const question = user('What is the capital of France?');
    const whole = await ask({ messages: [question], max_tokens: 6 });
    const [said] = whole.content;
    assert.ok(said?.type === 'text');
    const [, beginning = '', rest = ''] = /^(\s*\S+)(.*)$/s.exec(said.text) ?? [];
    const continued = await ask({ messages: [question, assistant(`${beginning} `)], max_tokens: 4 });
    const [more] = continued.content;
    assert.ok(more?.type === 'text' && more.text.trim() !== '');
    assert.ok(rest.startsWith(more.text) || more.text.startsWith(rest), `${said.text} | ${more.text}`);
  });

  it('leaves out what Anthropic runs or defines', async () => {
    const hosted = [
      { type: 'web_search_20250305', name: 'web_search' },
      { type: 'bash_20250124', name: 'bash' },
    ];
    const messages = [user('Hi')];
    const without = await ask({ messages, tools: [WEATHER] });
    const withHosted = await ask({
      messages,
      tools: [...hosted, { ...WEATHER, type: 'custom' }],
      thinking: { type: 'disabled' },
      metadata: { user_id: 'me' },
      service_tier: 'auto',
      context_management: { edits: [] },
    });
    assert.deepEqual(withHosted.content, without.content);
    const inputTokens = ({ usage }: Anthropic.Message) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0);
    assert.equal(inputTokens(withHosted), inputTokens(without));
  });

  it('refuses what it cannot serve, with the place and what helps', async () => {
    const hosted = { type: 'web_search_20250305', name: 'web_search' };
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: '' } };
    const hi = { messages: [user('Hi')] };
    for (const [more, message] of [
      [{ messages: [user([text('a'), image])] }, /^messages\[0\]\.content\[1\] has the type "image"/],
      [
        { messages: [user('Hi'), assistant([CALL]), user([{ ...RESULT, content: [image] }])] },
        /^messages\[2\]\.content\[0\]\.content\[0\] has the type "image"/,
      ],
      [{ messages: [user([{ type: 'image', source: { type: 5, media_type: 5 } }])] }, /has the type "image"/],
      ...[5, [null], { type: 'text', text: 'Sunny' }].map(
        (content) =>
          [
            { messages: [user('Hi'), assistant([CALL]), user([{ ...RESULT, content }])] },
            /^messages\[2\]\.content\[0\]\.content must be a text or a list of blocks/,
          ] as const,
      ),
      [{ messages: [user([{ type: 'search_result', content: 5 }])] }, /^messages\[0\]\.content\[0\]\.content must be/],
      [{ messages: [user([{ type: 'x'.repeat(20_000) }])] }, /^messages\[0\].* … .*in a text block\.$/],
      [{ messages: [user([{ type: 'document', source: { type: 'base64', data: '' } }])] }, /"document", but only/],
      [{ messages: [user([{ type: 'hologram' }])] }, /"hologram", which is not known here: leave the block out/],
      [{ messages: [user([CALL])] }, /"tool_use", but only turns of the assistant have calls/],
      [{ messages: [user('Hi'), assistant([RESULT]), user('Hi')] }, /"tool_result", but only turns of the user have/],
      [{ ...hi, thinking: { type: 'disable' } }, /^thinking\.type must be one of/],
      [{ messages: [user([{ type: 'text' }])] }, /^messages\[0\]\.content\[0\]\.text is missing/],
      [{ messages: [user([RESULT])] }, /no earlier turn has a tool_use block/],
      [{ messages: [user('Hi'), assistant([CALL])] }, /add a user turn with its tool_result/],
      [{ messages: [user('Hi'), assistant([{ ...CALL, input: 'x' }]), user('Hi')] }, /\.input is not an object/],
      [{ ...hi, system: [image] }, /^system\[0\] has the type "image"/],
      [{ ...hi, tools: [{ ...WEATHER, name: 'a b' }] }, /"a b" is not a valid name of a tool/],
      [{ ...hi, tools: [{ name: 'a' }] }, /^tools\[0\]\.input_schema is missing/],
      [{ ...hi, tools: [WEATHER, WEATHER] }, /Two tools are named "weather"/],
      [{ ...hi, tools: [{ type: 'hologram_20300101' }] }, /^tools\[0\] has the type "hologram_20300101"/],
      [{ ...hi, tools: [hosted], tool_choice: { type: 'any' } }, /web_search_20250305: set its type to auto/],
      [{ ...hi, tools: [hosted], tool_choice: { type: 'tool', name: 'web_search' } }, /set its type to auto/],
      [{ ...hi, tools: [WEATHER], tool_choice: { type: 'tool', name: 'other' } }, /There is no tool "other"/],
      [{ ...hi, tool_choice: { type: 'any' } }, /there are no `tools`/],
      [{ ...hi, mcp_servers: [{ url: 'https://a.example' }] }, /`mcp_servers` is not supported/],
      [{ ...hi, thread: { type: 'create' } }, /`thread` is not supported/],
      [{ ...hi, container: 'c' }, /`container` is not supported/],
      [{ ...hi, stop_sequences: ['a', ' '] }, /^stop_sequences\[1\] has only white space/],
      [{ ...hi, max_tokens: undefined }, /`max_tokens` is missing/],
      [{ ...hi, colour: 'red' }, /colour/],
      [{ messages: [user('word '.repeat(40_000))] }, /^prompt is too long: .* \d+ tokens/],
    ] as const)
      await assert.rejects(ask(more), (error) => {
        assert.ok(error instanceof BadRequestError, `${message}: ${error}`);
        assert.equal(error.type, 'invalid_request_error');
        assert.match(error.apiMessage ?? '', message);
        return true;
      });
  });
});
