import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, readFile, rm, rmdir, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import llamaTokenizer from 'llama-tokenizer-js';
import { compileChatTemplate } from './chat-template.ts';
import { ModelError } from './errors.ts';
import { pullModel } from './pull.ts';
import { publishedTokenizer } from './testing/published-tokenizer.ts';
import { randomVisionModel } from './testing/random-vision-model.ts';
import { loadTokenizer, type Tokenizer } from './tokenizer.ts';

const FRAGMENTS = [
  'Once',
  ' upon',
  'a',
  ' ',
  '  ',
  '   ',
  '\n',
  '\t',
  '😀',
  '你好',
  'é',
  '한국어',
  'ᚠ',
  '\ufeff',
  '\u0000',
  '🤚🏾',
].concat([
  'http://x.y/z?q=1',
  '123456',
  '“quote”',
  "don't",
  'function(){}',
  '<s>',
  '</s>',
  '<|im_end|>',
  '<0x0A>',
  '....',
  '--',
]);
const anyText = fc.array(fc.oneof(fc.constantFrom(...FRAGMENTS), fc.string({ unit: 'grapheme', maxLength: 4 })), {
  maxLength: 15,
});

function pieceByPiece(tokenizer: Tokenizer, tokens: Uint32Array): string {
  const stream = tokenizer.stream();
  return Array.from(tokens, (token) => stream.push([token])).join('') + stream.finish();
}

describe('a SentencePiece tokenizer (stories15m)', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
  });

  it('knows its special tokens', () => {
    assert.equal(tokenizer.vocabularySize, 32_000);
    assert.deepEqual(tokenizer.special, { bos: 1, eos: [2, 1], pad: null, unknown: 0 });
    assert.equal(tokenizer.chatTemplate, null);
    assert.throws(() => tokenizer.applyChatTemplate([], true), { code: 'no-chat-template' });
  });

  it('tokenizes as llama-tokenizer-js does, and decodes to the text', () => {
    fc.assert(
      fc.property(anyText, (fragments) => {
        // Decoding cannot tell the space mark `▁` from a space.
        const text = fragments.join('').replaceAll('▁', '_');
        const tokens = tokenizer.encode(text);
        if (text !== '') assert.deepEqual([...tokens], llamaTokenizer.encode(text, false, true));
        assert.equal(tokenizer.decode(tokens), text);
        assert.equal(pieceByPiece(tokenizer, tokens), text);
      }),
      { seed: 4, numRuns: 400 },
    );
    assert.equal(tokenizer.encode('').length, 0);
  });

  it('removes the space before the first word of a text, and keeps the space in a continuation', () => {
    const tokens = tokenizer.encode('Once upon');
    assert.deepEqual([...tokens], [9038, 2501]);
    assert.equal(tokenizer.decode([1, ...tokens]), 'Once upon');
    assert.equal(tokenizer.decode([1, ...tokens], { special: true }), '<s> Once upon');
    const stream = tokenizer.stream();
    assert.deepEqual([stream.push([1]), stream.push([9038]), stream.push([2501])], ['', 'Once', ' upon']);
    assert.equal(tokenizer.stream({ continuation: true }).push([2501]), ' upon');
    const afterPrompt = tokenizer.stream();
    afterPrompt.push([1, 9038]);
    assert.equal(afterPrompt.push([2501]), ' upon');
  });

  it('recognises special tokens only when asked', () => {
    assert.deepEqual([...tokenizer.encode('<s>', { special: true })], [1]);
    assert.deepEqual([...tokenizer.encode('a</s>', { special: true })], [263, 2]);
    const literal = tokenizer.encode('a</s>');
    assert.ok(!literal.includes(2));
    assert.equal(tokenizer.decode(literal), 'a</s>');
  });

  it('gives the bytes of every token', () => {
    assert.deepEqual([...tokenizer.tokenBytes(3)], [0]);
    assert.deepEqual([...tokenizer.tokenBytes(258)], [255]);
    assert.equal(Buffer.from(tokenizer.tokenBytes(2501)).toString(), ' upon');
    assert.equal(Buffer.from(tokenizer.tokenBytes(1)).toString(), '<s>');
    const bytes = Buffer.from('né 😀');
    const joined = Buffer.concat(Array.from(tokenizer.encode('né 😀'), (id) => tokenizer.tokenBytes(id)));
    assert.deepEqual(joined, Buffer.concat([Buffer.from(' '), bytes]));
  });

  it('refuses ids outside the vocabulary', () => {
    for (const id of [32_000, -1, 1.5, Number.NaN]) {
      assert.throws(() => tokenizer.tokenBytes(id), RangeError);
      assert.throws(() => tokenizer.decode([id]), RangeError);
      assert.throws(() => tokenizer.stream().push([id]), RangeError);
    }
  });
});

describe('a byte-level tokenizer (minimind2-small)', () => {
  let tokenizer: Tokenizer;
  let directory: string;
  before(async () => {
    directory = (await pullModel('minimind2-small')).directory;
    tokenizer = await loadTokenizer(directory);
  });

  it('decodes to the text, whole and piece by piece', () => {
    fc.assert(
      fc.property(anyText, (fragments) => {
        const text = fragments.join('');
        const tokens = tokenizer.encode(text);
        assert.equal(tokenizer.decode(tokens), text);
        assert.equal(pieceByPiece(tokenizer, tokens), text);
      }),
      { seed: 5, numRuns: 300 },
    );
  });

  it('applies the chat template', () => {
    const text = tokenizer.applyChatTemplate(
      [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Hi <|im_end|>' },
      ],
      true,
    );
    assert.equal(
      text,
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n',
    );
    const tokens = tokenizer.encode(text, { special: true });
    assert.equal(tokens.filter((token) => token === 1).length, 3);
    assert.equal(tokenizer.decode(tokens, { special: true }), text);
    assert.deepEqual(tokenizer.special, { bos: null, eos: [2, 1], pad: 0, unknown: 0 });
  });

  it('renders tools and tool calls, but no property of the prototype chain', () => {
    const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
    const call = { function: { name: 'add', arguments: { a: 1 } } };
    const messages = [
      { role: 'user', content: '1 + 1?' },
      { role: 'assistant', content: '', tool_calls: [call] },
      { role: 'tool', content: '2' },
    ];
    const text = tokenizer.renderChat({ messages, tools, add_generation_prompt: true });
    assert.ok(
      text.includes(
        `<tools>\n${'{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}'}`,
      ),
    );
    assert.ok(text.includes('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>'));
    assert.ok(text.endsWith('<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n'));

    const render = compileChatTemplate(
      '[{{ x.constructor }}{{ x.__proto__ }}{{ x.y.constructor }}{{ "".constructor }}{{ constructor }}{{ toString }}]',
      {},
    );
    assert.equal(render({ x: JSON.parse('{"y": "z"}') }), '[]');
    assert.equal(compileChatTemplate('{{ bos_token }}', { bos_token: '<s>' })({}), '<s>');
    assert.equal(compileChatTemplate('{{ strftime_now("%d %b %Y") | length }}', {})({}), '11');
  });

  it('gives the texts of messages as parts to a template that takes no other content, as those of models with a vision tower', () => {
    const typed = { role: 'user', content: [{ type: 'text', text: 'Bye' }] };
    const messages = [{ role: 'user', content: 'Hi' }, typed];
    const parts =
      "{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}|{% endfor %}{% endfor %}";
    assert.equal(compileChatTemplate(parts, {})({ messages }), 'Hi|Bye|');
    const both = '{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}|{% endfor %}';
    assert.equal(compileChatTemplate(both, {})({ messages }), 'Hi|Bye|');
    assert.equal(compileChatTemplate('none', {})({ messages: [null, ...messages] }), 'none');
  });

  it('fails when a template takes too long for its variables', () => {
    const quadratic = compileChatTemplate('{% for a in m %}{% for b in m %}{{ b }}{% endfor %}{% endfor %}', {});
    assert.equal(quadratic({ m: ['x', 'y'] }), 'xyxy');
    assert.throws(() => quadratic({ m: Array.from({ length: 20_000 }, () => 'x') }), {
      code: 'invalid-messages',
      message: /too long/,
    });
    const count = compileChatTemplate('{{ range(n) | length }}', {});
    assert.equal(count({ n: 10 }), '10');
    assert.throws(() => count({ n: 1e9 }), { code: 'invalid-messages', message: /range/ });
    let deep: unknown = 'x';
    for (let i = 0; i < 50_000; i++) deep = [deep];
    assert.throws(() => count({ n: 1, deep }), { code: 'invalid-messages' });
  });

  it('loads a chat template from chat_template.jinja; fails if that is malformed, a folder or too long, or refuses the messages', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'pie-template-'));
    try {
      for (const name of ['tokenizer.json', 'config.json']) await copyFile(join(directory, name), join(copy, name));
      assert.equal((await loadTokenizer(copy)).chatTemplate, null);
      const template = join(copy, 'chat_template.jinja');
      await writeFile(
        template,
        "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}[{{ messages[0].content }}]",
      );
      const templated = await loadTokenizer(copy);
      assert.equal(templated.applyChatTemplate([{ role: 'user', content: 'x' }], true), '[x]');
      assert.throws(() => templated.applyChatTemplate([{ role: 'system', content: 'x' }], true), {
        code: 'invalid-messages',
        message: /user first/,
      });
      await writeFile(template, '{% if %}');
      await assert.rejects(loadTokenizer(copy), { code: 'malformed-tokenizer' });
      await rm(template);
      await mkdir(template);
      await assert.rejects(loadTokenizer(copy), { name: 'ModelError', code: 'missing-file' });
      await rmdir(template);
      await writeFile(template, '');
      await truncate(template, (128 << 20) + 1);
      await assert.rejects(loadTokenizer(copy), { name: 'ModelError', code: 'malformed-config' });
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  });

  it('takes BOS from the files of the tokenizer, and from config.json only if these name none', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'pie-bos-'));
    const template = { type: 'TemplateProcessing', single: [{ SpecialToken: { id: 'x' } }, { Sequence: { id: 'A' } }] };
    const templateWithBosLast = { ...template, single: template.single.toReversed() };
    const bytes = { type: 'ByteLevel' };
    try {
      const json = JSON.parse(await readFile(join(directory, 'tokenizer.json'), 'utf8'));
      // `<|im_end|>` is token 2, and config.json names 8 as EOS. A BOS token that no text begins with counts as EOS.
      const named = { bos_token: '<|im_end|>' };
      for (const [settings, configBos, bos, eos, post_processor = null] of [
        [named, 7, 2, [8]],
        [{ ...named, add_bos_token: false }, 7, null, [8, 2]],
        [{ ...named, add_bos_token: false }, null, null, [8, 2], template],
        [{ ...named, add_bos_token: true }, null, 2, [8], bytes],
        // The layout of Llama 3, Mistral and SmolLM2.
        [named, 7, 2, [8], { type: 'Sequence', processors: [bytes, template] }],
        [named, 7, 2, [8], template],
        [named, 7, null, [8, 2], bytes],
        [named, 7, null, [8, 2], templateWithBosLast],
        [{}, 7, 7, [8]],
        [{ bos_token: null }, 7, null, [8, 7]],
      ] as const) {
        await writeFile(join(copy, 'tokenizer.json'), JSON.stringify({ ...json, post_processor }));
        await writeFile(join(copy, 'config.json'), JSON.stringify({ bos_token_id: configBos, eos_token_id: 8 }));
        await writeFile(join(copy, 'tokenizer_config.json'), JSON.stringify(settings));
        const { special } = await loadTokenizer(copy);
        assert.deepEqual([special.bos, special.eos], [bos, eos]);
      }
      await writeFile(join(copy, 'tokenizer_config.json'), '{}');
      const strange = { vocab_size: 100, bos_token_id: 100, eos_token_id: [8, 100, -1], pad_token_id: -1 };
      await writeFile(join(copy, 'config.json'), JSON.stringify(strange));
      const { special } = await loadTokenizer(copy);
      assert.deepEqual(
        [special.bos, special.eos, special.pad],
        [null, [8], null],
        'ids for which the model has no row are left out',
      );
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  });

  it('makes added tokens special if they begin or end a text or a turn, and keeps other added tokens as the file states', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'pie-control-'));
    try {
      const json = JSON.parse(await readFile(join(directory, 'tokenizer.json'), 'utf8'));
      const names = ['<|im_start|>', '<|im_end|>', '<think>', '<bos>', '<eos>', '<pad>', '<unk>', '<stop>', '<end>'];
      // The first two are tokens 1 and 2 of the vocabulary of 6,400 tokens. The others get ids after the vocabulary.
      const ids = new Map(names.map((name, i) => [name, i < 2 ? 1 + i : 6400 + i]));
      const added = [...ids].map(([content, id]) => ({ id, content, special: false, normalized: false }));
      const settings = { bos_token: '<bos>', eos_token: '<eos>', pad_token: { content: '<pad>' }, unk_token: '<unk>' };
      await writeFile(
        join(copy, 'tokenizer.json'),
        JSON.stringify({ ...json, added_tokens: [json.added_tokens[0], ...added] }),
      );
      await writeFile(join(copy, 'tokenizer_config.json'), JSON.stringify(settings));
      await writeFile(join(copy, 'config.json'), JSON.stringify({ eos_token_id: ids.get('<stop>') }));
      await writeFile(join(copy, 'generation_config.json'), JSON.stringify({ eos_token_id: [0, ids.get('<end>')] }));
      const loaded = await loadTokenizer(copy);
      for (const [name, id] of ids) {
        const text = `a${name}b`;
        const isOrdinary = name === '<think>';
        assert.ok(loaded.encode(text, { special: true }).includes(id), name);
        assert.equal(loaded.encode(text).includes(id), isOrdinary, name);
        assert.equal(loaded.decode([id]), isOrdinary ? name : '', name);
        assert.equal(loaded.decode(loaded.encode(text)), text);
      }
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  });

  it('refuses files that are not a tokenizer', async () => {
    const broken = await mkdtemp(join(tmpdir(), 'pie-broken-'));
    try {
      await assert.rejects(loadTokenizer(broken), { code: 'missing-file' });
      const whole = JSON.parse(await readFile(join(directory, 'tokenizer.json'), 'utf8'));
      for (const json of [
        [],
        {},
        { ...whole, model: { type: 'Nonsense' } },
        { ...whole, decoder: null },
        { ...whole, added_tokens: [{}] },
        { ...whole, added_tokens: [{ id: 2 ** 31, content: '<far>' }] },
      ]) {
        await writeFile(join(broken, 'tokenizer.json'), JSON.stringify(json));
        await assert.rejects(
          loadTokenizer(broken),
          (error) => error instanceof ModelError,
          JSON.stringify(json).slice(0, 80),
        );
      }
    } finally {
      await rm(broken, { recursive: true, force: true });
    }
  });
});

describe('a tokenizer with Metaspace', () => {
  it('puts no space before a text if tokenizer.json says add_prefix_space: false', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-metaspace-'));
    try {
      const vocab = { '<unk>': 0, '▁': 1, H: 2, i: 3, Hi: 4, '▁Hi': 5 };
      const merges = ['H i', '▁ Hi'];
      const model = { type: 'BPE', vocab, merges, unk_token: '<unk>', fuse_unk: false, byte_fallback: false };
      const load = async (options: object, nested = false) => {
        const space = { type: 'Metaspace', replacement: '▁', ...options };
        const split = nested ? { type: 'Sequence', pretokenizers: [space] } : space;
        await writeFile(
          join(directory, 'tokenizer.json'),
          JSON.stringify({ model, pre_tokenizer: split, decoder: space }),
        );
        return loadTokenizer(directory);
      };
      for (const [tokenizer, tokens] of [
        [await load({ add_prefix_space: true }), [5, 5]],
        [await load({ add_prefix_space: false }), [4, 5]],
        [await load({ add_prefix_space: false }, true), [4, 5]],
        // Files of earlier library releases have both fields. When these contradict each other, `add_prefix_space` decides.
        [await load({ add_prefix_space: false, prepend_scheme: 'always' }), [4, 5]],
      ] as const) {
        assert.deepEqual([...tokenizer.encode('Hi Hi')], tokens);
        assert.equal(tokenizer.decode(tokens), 'Hi Hi');
      }
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});

describe('the tokenizer of a model with a vision tower', () => {
  it('has the ids of the text model, whose output has more rows than the tokenizer has tokens', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-tokenizer-'));
    try {
      await randomVisionModel(directory, { text: { vocabularySize: 320, eosTokenIds: [2, 9] } }, 1);
      const tokenizer = await loadTokenizer(directory);
      // The last token of tokenizer.json is 258; tokens 100 and 101 are the bytes `a` and `b`.
      assert.equal(tokenizer.vocabularySize, 320);
      assert.equal(tokenizer.decode([100, 319, 101]), 'ab');
      assert.deepEqual(tokenizer.special.eos, [2, 9]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});

// These tests download the tokenizers of four published models, so only the long suite runs them.
describe('tokenizers of other families', { skip: !process.env.PIE_TEST_ALL && 'set PIE_TEST_ALL' }, () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-tokenizers-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const LLAMA_DATE =
    /^<\|begin_of_text\|><\|start_header_id\|>system<\|end_header_id\|>\n\nCutting Knowledge Date: December 2023\nToday Date: \d\d \w{3} \d{4}\n\n/;
  const chats: Readonly<Record<string, string>> = {
    llama3_2:
      '<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    qwen2_5:
      '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    qwen3: '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
  };
  for (const [name, helloWorld] of [
    ['llama3_2', [9906, 1917]],
    ['qwen2_5', [9707, 1879]],
    ['qwen3', [9707, 1879]],
    ['gpt2', [15496, 995]],
  ] as const) {
    it(`${name}: tokenizes, renders the chat of the model's card, and decodes to the text`, async () => {
      const tokenizer = await loadTokenizer(await publishedTokenizer(name));
      assert.deepEqual([...tokenizer.encode('Hello world')], helloWorld);
      if (name in chats) {
        // The expected texts are those of the models' cards; Llama's template puts the date first.
        const chat = tokenizer.applyChatTemplate([{ role: 'user', content: 'Hi' }], true);
        assert.equal(chat.replace(LLAMA_DATE, ''), chats[name]);
        assert.equal(LLAMA_DATE.test(chat), name === 'llama3_2');
      }
      fc.assert(
        fc.property(anyText, (fragments) => {
          // Qwen composes characters (NFC) before it tokenizes.
          const text = fragments.join('').normalize('NFC');
          assert.equal(pieceByPiece(tokenizer, tokenizer.encode(text)), text);
        }),
        { seed: 6, numRuns: 100 },
      );
    });
  }
});
