import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { deflateSync } from 'node:zlib';
import Anthropic, { type BadRequestError as AnthropicRefusal } from '@anthropic-ai/sdk';
import OpenAI, { APIError, BadRequestError } from 'openai';
import { png } from '#runtime/images/testing/png.ts';
import { call } from '#test/harness/deploy.ts';
import {
  CHAT,
  deployFrom,
  deployFunction,
  functionsPlatform,
  TINY_VISION,
  trustedCertificate,
  VISION_CHAT,
} from '#test/harness/functions.ts';
import { ROOT } from '#test/harness/platform.ts';

/** Embeds of an image on both models. */
const EMBEDS = 9;
const MAX_TOKENS = 12;
/** The types of Anthropic's client lack the parameter. */
const GREEDY: object = { temperature: 0 };

/** A PNG of stripes in a colour. */
function image(red: number, green: number, blue: number, { width = 16, height = 12 } = {}): Uint8Array {
  const row = [0, ...Array.from({ length: width }, (_, x) => (x % 3 === 0 ? [red, green, blue] : [9, 9, 9])).flat()];
  return png(width, height, deflateSync(Uint8Array.from(Array.from({ length: height }, () => row).flat())));
}
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const dataUrl = (bytes: Uint8Array, type = 'image/png'): string => `data:${type};base64,${base64(bytes)}`;

const RED = image(250, 20, 10);
const BLUE = image(10, 40, 240);

type Part = string | Uint8Array;
type Turn = readonly [role: 'user' | 'assistant', ...parts: Part[]];

/** The prompt that the template of a model makes of a conversation. */
function rendered(turns: readonly Turn[], behindImage = ''): Part[] {
  const parts = turns.flatMap(([role, ...content]): Part[] => [
    `${role}: `,
    ...content.flatMap((part): Part[] => (typeof part === 'string' ? [part] : [part, behindImage])),
    '\n',
  ]);
  return [...parts, 'assistant: '];
}

/** An answer as each API reports it. */
interface Answered {
  readonly text: string;
  readonly promptTokens: number;
}

let openai: OpenAI;
let anthropic: Anthropic;
let server: Server | undefined;
let origin = '';
/** Paths that clients of the image server have asked for. */
const asked: string[] = [];

/** What the image handler itself says to a prompt. */
async function direct(prompt: readonly Part[], model = VISION_CHAT): Promise<Answered> {
  const input = {
    model,
    maxTokens: MAX_TOKENS,
    prompt: prompt.map((part) => (typeof part === 'string' ? part : [...part])),
  };
  const { length, text } = await call(await functionsPlatform(), 'sdk-show', input);
  return { promptTokens: length, text };
}

/** The APIs, each with its own form of images. */
const APIS = {
  chat: async (turns: readonly Turn[], { stream = false, model = VISION_CHAT } = {}): Promise<Answered> => {
    const messages = turns.map(([role, ...content]) =>
      role === 'assistant'
        ? { role, content: content.join('') }
        : {
            role,
            content: content.map((part) =>
              typeof part === 'string'
                ? { type: 'text' as const, text: part }
                : { type: 'image_url' as const, image_url: { url: dataUrl(part), detail: 'high' as const } },
            ),
          },
    );
    const request = { model, messages, temperature: 0, max_completion_tokens: MAX_TOKENS };
    const { choices, usage } = stream
      ? await openai.chat.completions
          .stream({ ...request, stream_options: { include_usage: true } })
          .finalChatCompletion()
      : await openai.chat.completions.create(request);
    return { text: choices[0]?.message.content ?? '', promptTokens: usage?.prompt_tokens ?? 0 };
  },
  responses: async (turns: readonly Turn[], { stream = false, model = VISION_CHAT } = {}): Promise<Answered> => {
    const input = turns.map(([role, ...content]) =>
      role === 'assistant'
        ? { role, content: content.join('') }
        : {
            role,
            content: content.map((part) =>
              typeof part === 'string'
                ? { type: 'input_text' as const, text: part }
                : { type: 'input_image' as const, image_url: dataUrl(part), detail: 'auto' as const },
            ),
          },
    );
    const request = { model, input, temperature: 0, max_output_tokens: MAX_TOKENS };
    const response = stream
      ? await openai.responses.stream(request).finalResponse()
      : await openai.responses.create(request);
    return { text: response.output_text, promptTokens: response.usage?.input_tokens ?? 0 };
  },
  messages: async (turns: readonly Turn[], { stream = false, model = VISION_CHAT } = {}): Promise<Answered> => {
    const request = { ...anthropicRequest(turns, model), temperature: 0, max_tokens: MAX_TOKENS };
    const { content, usage } = stream
      ? await anthropic.messages.stream(request).finalMessage()
      : await anthropic.messages.create(request);
    return {
      text: content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
      promptTokens: usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
    };
  },
};

function anthropicRequest(turns: readonly Turn[], model: string) {
  const messages = turns.map(([role, ...content]) => ({
    role,
    content: content.map((part) =>
      typeof part === 'string'
        ? { type: 'text' as const, text: part }
        : {
            type: 'image' as const,
            source: { type: 'base64' as const, media_type: 'image/png' as const, data: base64(part) },
          },
    ),
  }));
  return { model, messages };
}

describe('images', () => {
  before(async () => {
    const platform = await functionsPlatform();
    await Promise.all([
      ...['openai-chat', 'openai-responses', 'anthropic-messages'].map(deployFunction),
      deployFrom(path.join(ROOT, 'functions/sdk/fixtures/show.ts'), 'sdk-show'),
    ]);
    openai = new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey, maxRetries: 0 });
    anthropic = new Anthropic({ baseURL: platform.url, apiKey: platform.apiKey, maxRetries: 0 });
    const certificate = trustedCertificate();
    if (!certificate) return;
    server = createServer({ key: certificate.key, cert: certificate.certificate }, (request, response) => {
      asked.push(request.url ?? '');
      if (/^\/red\.png/.test(request.url ?? '')) response.end(RED);
      else if (/^\/blue\.png/.test(request.url ?? '')) response.end(BLUE);
      else if (request.url === '/moved.png') response.writeHead(302, { location: '/red.png' }).end();
      else if (request.url === '/away.png')
        response.writeHead(302, { location: origin.replace('localhost', '127.0.0.1') }).end();
      else if (request.url === '/plain.png')
        response.writeHead(302, { location: origin.replace('https', 'http') }).end();
      else if (request.url === '/large.png') response.end(Buffer.alloc(9 * 2 ** 20));
      else response.writeHead(404).end('nothing here');
    });
    await once(server.listen(0, 'localhost'), 'listening');
    origin = `https://localhost:${(server.address() as AddressInfo).port}`;
  });
  after(() => {
    server?.closeAllConnections();
    server?.close();
  });

  const MIXED: Turn = ['user', 'What do ', RED, ' and ', BLUE, ' <image> show?'];

  for (const [name, ask] of Object.entries(APIS))
    it(`are answered on ${name} as the image handler answers, streamed and whole, over two turns`, async () => {
      const expected = await direct(rendered([MIXED]));
      assert.notEqual(expected.text, '');
      const whole = await ask([MIXED]);
      assert.deepEqual(whole, expected);
      assert.deepEqual(await ask([MIXED], { stream: true }), expected);
      const turns: Turn[] = [MIXED, ['assistant', 'Two.'], ['user', BLUE, 'And this?']];
      const second = await ask(turns);
      assert.deepEqual(second, await direct(rendered(turns)));
      assert.ok(second.promptTokens > whole.promptTokens + EMBEDS);
    });

  it('differ by their content, their order and their place in the text', async () => {
    const texts = await Promise.all(
      [
        [RED, BLUE, 'What?'],
        [BLUE, RED, 'What?'],
        [RED, RED, 'What?'],
        ['What?', RED, BLUE],
        [RED, 'What?', BLUE],
      ].map(async (content) => (await APIS.chat([['user', ...content]])).text),
    );
    assert.equal(new Set(texts).size, texts.length, JSON.stringify(texts));
    // The same text with the first images again: pages of other images are not found for it.
    assert.equal((await APIS.chat([['user', RED, BLUE, 'What?']])).text, texts[0]);
  });

  it('are shown by a template that only takes texts', async () => {
    const turns: Turn[] = [['user', 'See: ', RED, 'Well?']];
    const expected = await direct(rendered(turns, '\n'), TINY_VISION);
    for (const ask of Object.values(APIS)) assert.deepEqual(await ask(turns, { model: TINY_VISION }), expected);
  });

  it('may be in data URLs whose data are escaped', async () => {
    const [head = '', data = ''] = dataUrl(RED).split(',');
    const escapes = data.replace(/[/+=R]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`);
    const [plain, escaped] = await Promise.all(
      [data, escapes].map((each) =>
        openai.chat.completions.create({
          model: VISION_CHAT,
          temperature: 0,
          max_tokens: MAX_TOKENS,
          messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `${head},${each}` } }] }],
        }),
      ),
    );
    assert.match(escapes, /%52/);
    assert.deepEqual(escaped?.choices, plain?.choices);
  });

  it('are counted by count_tokens, and shown in results of tools and by several choices', async () => {
    const continued: Turn[] = [MIXED, ['assistant', 'They show']];
    const counted = await anthropic.messages.countTokens(anthropicRequest(continued, VISION_CHAT));
    assert.equal(counted.input_tokens, (await APIS.messages(continued)).promptTokens);
    const { promptTokens, text } = await APIS.messages([MIXED]);
    assert.equal(
      (await anthropic.messages.countTokens(anthropicRequest([MIXED], VISION_CHAT))).input_tokens,
      promptTokens,
    );
    const prompt = ['user: Look\nassistant: \ntool: A photo:', RED, '\nassistant: '];
    const expected = await direct(prompt);
    const call = { call_id: 'c', type: 'function_call' as const, name: 'look', arguments: '{}' };
    const output = [
      { type: 'input_text' as const, text: 'A photo:' },
      { type: 'input_image' as const, image_url: dataUrl(RED), detail: 'low' as const },
    ];
    const { output_text } = await openai.responses.create({
      model: VISION_CHAT,
      temperature: 0,
      max_output_tokens: MAX_TOKENS,
      input: [{ role: 'user', content: 'Look' }, call, { type: 'function_call_output', call_id: 'c', output }],
    });
    assert.equal(output_text, expected.text);
    const result = await anthropic.messages.create({
      ...GREEDY,
      model: VISION_CHAT,
      max_tokens: MAX_TOKENS,
      messages: [
        { role: 'user', content: 'Look' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'look', input: {} }] },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 't',
              content: [
                { type: 'text', text: 'A photo:' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64(RED) } },
              ],
            },
          ],
        },
      ],
    });
    assert.equal(result.content[0]?.type === 'text' && result.content[0].text, expected.text);
    const [, ...content] = MIXED;
    const { choices } = await openai.chat.completions.create({
      model: VISION_CHAT,
      temperature: 0,
      max_tokens: MAX_TOKENS,
      n: 3,
      messages: [{ role: 'user', content: content.map(chatPart) }],
    });
    assert.deepEqual(
      choices.map(({ message }) => message.content),
      [text, text, text],
    );
  });

  const chatPart = (part: Part) =>
    typeof part === 'string'
      ? { type: 'text' as const, text: part }
      : { type: 'image_url' as const, image_url: { url: dataUrl(part) } };

  /** The refusal of an image by the chat API. */
  async function refusal(
    url: unknown,
    model = VISION_CHAT,
  ): Promise<{ message: string; param: string | null | undefined }> {
    const content = [
      { type: 'text', text: 'a' },
      { type: 'image_url', image_url: { url } },
    ];
    const request = { model, max_tokens: 1, messages: [{ role: 'user', content }] };
    try {
      await openai.chat.completions.create(request as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming);
    } catch (error) {
      assert.ok(error instanceof BadRequestError, String(error));
      return { message: error.message, param: error.param };
    }
    return assert.fail('the image was accepted');
  }

  it('are refused with their place and what helps, if they cannot be read', async () => {
    const at = 'messages[0].content[1]';
    const cut = RED.slice(0, RED.length - 30);
    const bomb = png(100_000, 100_000, deflateSync(new Uint8Array(1000)));
    const twice = png(8, 8, deflateSync(new Uint8Array(4 * 2 ** 20)));
    for (const [url, message] of [
      [undefined, /image_url\.url is missing: send a PNG or JPEG as a data URL/],
      [5, /image_url\.url must be a text: send a PNG or JPEG as a data URL/],
      ['', /is no https or data URL/],
      ['http://localhost/a.png', /is no https or data URL/],
      ['file:///etc/passwd', /is no https or data URL/],
      ['data:image/png;base64', /is a data URL without base64 data/],
      ['data:image/png,%89PNG', /is a data URL without base64 data/],
      [dataUrl(RED, 'image/webp'), /has the media type "image\/webp"/],
      [dataUrl(RED, 'text/html'), /has the media type "text\/html"/],
      ['data:image/png;base64,', /has no image in base64/],
      ['data:image/png;base64,a&b=', /has no image in base64/],
      ['data:image/png;base64,AAAAé', /has no image in base64/],
      ['data:image/png;base64,AA=A', /has no image in base64/],
      ['data:image/png;base64,AAA%8', /has no image in base64/],
      [`data:image/png;base64,${'%41'.repeat(1_000_000)}`, /neither a PNG nor a JPEG/],
      [dataUrl(new Uint8Array(100)), /neither a PNG nor a JPEG/],
      [dataUrl(cut), /the PNG ends inside a chunk/],
      [dataUrl(bomb), /100000 × 100000 pixels; 16000000 are the limit/],
      [dataUrl(twice.fill(0, 50, 60)), /cannot be unpacked: the image is damaged/],
      [dataUrl(png(4000, 4000, deflateSync(new Uint8Array(10)))), /has fewer pixels than it says/],
      ['https://example.org/a.png', /not granted requests to https:\/\/example\.org: .* image_hosts/],
      ['https://user@localhost/a.png', /contains a user or password/],
    ] as const) {
      const refused = await refusal(url);
      assert.match(refused.message, message);
      assert.equal(refused.param, `${at}.image_url.url`, refused.message);
    }
    const blind = await refusal(dataUrl(RED), CHAT);
    assert.equal(blind.param, `${at}.type`);
    assert.match(
      blind.message,
      /has the type "image_url", but minimind2-small has no image encoder, so use .*vision-chat/,
    );
    const many = Array.from({ length: 33 }, () => chatPart(RED));
    const tooMany = openai.chat.completions.create({ model: VISION_CHAT, messages: [{ role: 'user', content: many }] });
    await assert.rejects(tooMany, /has 33 images; 32 are allowed/);
    const long = Array.from({ length: 60 }, () => ['user', RED] as const).slice(0, 32);
    await assert.rejects(
      APIS.chat([['user', 'word '.repeat(100)], ...long]),
      (error: BadRequestError) => error.code === 'context_length_exceeded',
    );
  });

  it('are shown or refused, whatever bytes they have', async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 24 }, async (_, i) => {
        const damaged = RED.slice(0, RED.length - (i % 4) * 5);
        const at = 8 + ((i * 37) % (damaged.length - 8));
        damaged[at] = (damaged[at] ?? 0) ^ (1 << (i % 8));
        return APIS.chat([['user', damaged]]).then(
          () => 200,
          (error: unknown) => (error instanceof APIError ? error.status : error),
        );
      }),
    );
    for (const outcome of outcomes) assert.ok(outcome === 200 || outcome === 400, String(outcome));
    assert.ok(outcomes.includes(400));
  });

  it('may fill the body of a request, and no more', async () => {
    const side = 1000;
    const noise = randomBytes(side * (3 * side + 1)).map((byte, i) => (i % (3 * side + 1) === 0 ? 0 : byte));
    const large = png(side, side, deflateSync(noise, { level: 0 }));
    const answers = await Promise.all([APIS.chat, APIS.messages].map((ask) => ask([['user', large]])));
    assert.deepEqual(answers[1], answers[0]);
    assert.equal(answers[0]?.promptTokens, 'user: \nassistant: '.length + EMBEDS);
    const larger = new Uint8Array(3.5 * 2 ** 20);
    for (const ask of Object.values(APIS)) await assert.rejects(ask([['user', larger]]), /larger than 4194304 bytes/);
  });

  it('are refused in the form of each API', async () => {
    const item = { type: 'input_image', file_id: 'file-1', detail: 'auto' } as const;
    const byId = openai.responses.create({ model: VISION_CHAT, input: [{ role: 'user', content: [item] }] });
    await assert.rejects(byId, (error: BadRequestError) => {
      assert.match(error.message, /input\[0\]\.content\[0\] has the type "input_image", but files are not stored here/);
      assert.equal(error.param, 'input[0].content[0].file_id');
      return true;
    });
    const source = { type: 'base64', media_type: 'image/png', data: base64(RED) } as const;
    const ask = (model: string, image: object, role: 'user' | 'assistant' = 'user') =>
      anthropic.messages.create({
        model,
        max_tokens: 1,
        messages: [
          { role, content: [image as Anthropic.ImageBlockParam] },
          { role: 'user', content: 'Hi' },
        ],
      });
    for (const [asking, message] of [
      [
        () => ask(CHAT, { type: 'image', source }),
        /^messages\[0\]\.content\[0\] has the type "image", but minimind2-small/,
      ],
      [
        () => ask(VISION_CHAT, { type: 'image', source }, 'assistant'),
        /"image", but only turns and tool results of the user/,
      ],
      [
        () => ask(VISION_CHAT, { type: 'image', source: { type: 'file', file_id: 'f' } }),
        /only base64 and url are served/,
      ],
      [() => ask(VISION_CHAT, { type: 'image' }), /but it has no `source`: send a PNG or JPEG/],
      [
        () => ask(VISION_CHAT, { type: 'image', source: { ...source, media_type: 'image/gif' } }),
        /media type "image\/gif": send a PNG or JPEG as a `source` of the type base64/,
      ],
      [() => ask(VISION_CHAT, { type: 'image', source: { type: 'url', url: 'https://example.org/a' } }), /image_hosts/],
    ] as const)
      await assert.rejects(asking(), (error: AnthropicRefusal) => {
        assert.equal(error.type, 'invalid_request_error');
        assert.match(error.apiMessage ?? '', message);
        return true;
      });
  });

  it('are loaded from the hosts that the operator allows, and from no other', async (t) => {
    if (!server) return t.skip('the machines of this platform trust no certificate of the test');
    const expected = await APIS.chat([['user', RED, 'What?']]);
    const { choices } = await openai.chat.completions.create({
      model: VISION_CHAT,
      temperature: 0,
      max_completion_tokens: MAX_TOKENS,
      messages: [
        { role: 'user', content: [{ type: 'image_url', image_url: { url: `${origin}/red.png` } }, chatPart('What?')] },
      ],
    });
    assert.equal(choices[0]?.message.content, expected.text);
    // More images than are loaded at the same time, in their order.
    const manyUrls = Array.from({ length: 12 }, (_, i) => `${origin}/${i % 2 ? 'blue' : 'red'}.png?${i}`);
    const many = await openai.chat.completions.create({
      model: VISION_CHAT,
      temperature: 0,
      max_completion_tokens: MAX_TOKENS,
      messages: [{ role: 'user', content: manyUrls.map((url) => ({ type: 'image_url', image_url: { url } })) }],
    });
    const shown = await APIS.chat([['user', ...manyUrls.map((_, i) => (i % 2 ? BLUE : RED))]]);
    assert.equal(many.choices[0]?.message.content, shown.text);
    const { content } = await anthropic.messages.create({
      ...GREEDY,
      model: VISION_CHAT,
      max_tokens: MAX_TOKENS,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'url', url: `${origin}/moved.png` } },
            { type: 'text', text: 'What?' },
          ],
        },
      ],
    });
    assert.equal(content[0]?.type === 'text' && content[0].text, expected.text);
    for (const [name, message] of [
      ['none.png', /the host answered with the status 404/],
      ['away.png', /a redirect leads to https:\/\/127\.0\.0\.1:\d+, a host .* image_hosts/],
      ['plain.png', /a redirect leads to http:\/\/localhost:\d+, a host .* image_hosts/],
      ['large.png', /more than 8388608 bytes/],
    ] as const)
      assert.match((await refusal(`${origin}/${name}`)).message, message);
    const port = new URL(origin).port;
    assert.match((await refusal(`https://127.0.0.1:${port}/red.png`)).message, /image_hosts/);
    assert.match((await refusal(`http://localhost:${port}/red.png`)).message, /is no https or data URL/);
    assert.deepEqual(asked.filter((each) => each === '/red.png').length, 2);
  });
});
