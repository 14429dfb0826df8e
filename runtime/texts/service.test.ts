import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import llamaTokenizer from 'llama-tokenizer-js';
import { pullModel } from '#gpu-host/models/pull.ts';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { failureOf, value } from '../testing/outcome.ts';
import { Account } from '../workers/account.ts';
import { WorkerPool } from '../workers/pool.ts';
import { TextService, type TextUser } from './service.ts';

const MIB = 1 << 20;
/** Characters of the longest text that the tests tokenize. */
const LONGEST = 32_768;

async function modelOf(name: string) {
  const { directory } = await pullModel(name);
  return { directory, tokenizer: await loadTokenizer(directory) };
}

const stories = await modelOf('stories15m');
const minimind = await modelOf('minimind2-small');

const messageOf = (outcome: Outcome<unknown>) => (outcome.tag === 'ok' ? 'ok' : outcome.val.val);
const user = (tenant = 'a', more: Partial<TextUser> = {}): TextUser => ({ tenant, account: new Account(), ...more });

/** Texts of Latin words and of any graphemes, including scripts that are not in the vocabulary. */
const texts = fc
  .array(fc.oneof(fc.lorem({ maxCount: 3 }), fc.string({ unit: 'grapheme', maxLength: 12 })), {
    minLength: 30,
    maxLength: 60,
    size: 'max',
  })
  // A tokenizer marks spaces with '▁', so it cannot distinguish a '▁' of the text from a space.
  .map((words) => words.join(' ').replaceAll('▁', '_'));
/** Slow to tokenize for its length: none of its characters is in the vocabulary. */
const han = (length: number) =>
  Array.from({ length }, (_, i) => String.fromCharCode(0x4e00 + ((i * 7919) % 20_000))).join('');

describe('the text service', () => {
  const opened: TextService[] = [];
  const open = (options: ConstructorParameters<typeof TextService>[0] = {}) => {
    const service = new TextService(options);
    opened.push(service);
    return service;
  };
  after(() => Promise.all(opened.map((service) => service.close())));
  const shared = open();

  it('encodes for the shape that a GPU host reports, also after the shape has changed', async () => {
    const directory = await mkdtemp(path.join(tmpdir(), 'pie-texts-'));
    try {
      await randomEncoder(directory, { kind: 'embedding' }, 1);
      const service = open({ maxWorkers: 1 });
      const lengths = async (contextLength: number) => [
        ...value(await service.encode(user(), { directory, contextLength, tokenTypes: 2 }, ['king '.repeat(40), 'a']))
          .lengths,
      ];
      // The texts have 40 tokens and 1 token, and each gets two special ones. A context of 16 tokens cuts the long text.
      assert.deepEqual(await lengths(64), [42, 3]);
      assert.deepEqual(await lengths(16), [16, 3]);
      assert.deepEqual(await lengths(64), [42, 3]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  it('tokenizes like llama-tokenizer-js, long texts in workers and short ones at once', async () => {
    let immediateAnswers = 0;
    const check = async (text: string) => {
      const answer = shared.tokenize(user(), stories, text, false);
      if (!(answer instanceof Promise)) immediateAnswers++;
      // The library's flags: no token that begins a sequence, and a space before the text.
      assert.deepEqual([...value(await answer)], llamaTokenizer.encode(text, false, true));
    };
    await fc.assert(fc.asyncProperty(texts, check), { seed: 6, numRuns: 60 });
    assert.equal(immediateAnswers, 0);
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 120, size: 'max' }), check),
      {
        seed: 7,
        numRuns: 60,
      },
    );
    assert.equal(immediateAnswers, 60);
  });

  it('tokenizes like the library, including special tokens in the text', async () => {
    const json = async (file: string) => JSON.parse(await readFile(path.join(minimind.directory, file), 'utf8'));
    const library = new LibraryTokenizer(await json('tokenizer.json'), await json('tokenizer_config.json'));
    const check = async (text: string) => {
      const marked = `<|im_start|>user\n${text}<|im_end|>`;
      const { ids } = library.encode(marked, { add_special_tokens: false });
      assert.deepEqual([...value(await shared.tokenize(user(), minimind, marked, true))], [...ids]);
    };
    await fc.assert(fc.asyncProperty(texts, check), { seed: 8, numRuns: 60 });
  });

  it('renders chats, and reports why a template or JSON fails', async () => {
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Hi' },
    ];
    const expected = '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n';
    const render = (conversation: Parameters<TextService['render']>[2], most = 1000) =>
      shared.render(user(), minimind, conversation, most);
    assert.equal(value(await render({ messages, addGenerationPrompt: true })), expected);
    const variables = JSON.stringify({ messages, add_generation_prompt: true });
    assert.equal(value(await render({ variables })), expected);
    assert.equal(failureOf(await render({ variables }, expected.length)), 'ok');
    assert.equal(failureOf(await render({ variables }, expected.length - 1)), 'limit-exceeded');
    assert.match(messageOf(await render({ variables: '[]' })), /a JSON object/);
    assert.deepEqual(failureOf(await render({ variables: '{"messages": 1' })), 'invalid-argument');
    const slow = { messages: Array.from({ length: 8192 }, () => messages[1] as never), addGenerationPrompt: true };
    const outcome = await render(slow, 10 * MIB);
    // The limits on a template's time and steps may end the rendering first.
    assert.ok(outcome.tag === 'ok' || /too long/.test(outcome.val.val), messageOf(outcome));
  });

  it("charges the worker's time to the caller's account", async () => {
    let chargedMs = 0;
    const cpu = { charge: (ms: number) => (chargedMs += ms), usedUp: () => chargedMs > 0 };
    const account = new Account(cpu);
    // A coarse clock may measure 0 ms for a call.
    for (let calls = 0; chargedMs === 0; calls++) {
      assert.ok(calls < 100);
      value(await shared.tokenize(user('a', { account }), stories, han(LONGEST), false));
    }
    assert.equal(
      failureOf(await shared.tokenize(user('a', { account }), stories, han(LONGEST), false)),
      'limit-exceeded',
    );
  });

  it('checks large JSON at any depth of nesting', async () => {
    const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;
    for (const [text, tag] of [
      ['1', 'ok'],
      ['', 'invalid-argument'],
      ['{"a":1}x', 'invalid-argument'],
      [nested(2 * MIB), 'ok'],
      ['['.repeat(4 * MIB), 'invalid-argument'],
      [`[${'{},'.repeat(1.3 * MIB)}{}]`, 'ok'],
      [`[${'0,'.repeat(2 * MIB - 2)}0}`, 'invalid-argument'],
      [`"${'é'.repeat(4 * MIB - 2)}"`, 'ok'],
      [`{${Array.from({ length: 300_000 }, (_, i) => `"${i.toString(36)}x":1`).join()}}`, 'ok'],
    ] as const) {
      assert.equal(failureOf(await shared.check(user(), text)), tag, `${text.slice(0, 20)}… of ${text.length}`);
    }
  });

  it("checks an input against its own tenant's schema, even if versions of two tenants have the same id", async () => {
    const version = (tenant: string, input: unknown) => ({ name: 'f', version: 'same', tenant, manifest: { input } });
    // With one worker, the same thread keeps the schemas of both tenants.
    const service = open({ maxWorkers: 1 });
    assert.equal(failureOf(await service.check(user('a'), '1', version('a', false))), 'invalid-argument');
    assert.equal(failureOf(await service.check(user('b'), '1', version('b', true))), 'ok');
  });

  it('serves tenants in turn', async () => {
    const service = open({ maxWorkers: 1 });
    await service.warm([stories.directory]);
    const order: string[] = [];
    const ask = async (tenant: string, length: number) => {
      value(await service.tokenize(user(tenant), stories, han(length), false));
      order.push(tenant);
    };
    const flood = Array.from({ length: 6 }, () => ask('flood', LONGEST / 8));
    const others = Array.from({ length: 3 }, (_, i) => ask(`other ${i}`, 200));
    await Promise.all(others);
    // In the order of the calls, `other 2` would be the last of nine.
    assert.ok(order.indexOf('other 2') < 6, order.join());
    await Promise.all(flood);
  });

  it("refuses calls beyond the tenant's share of the queue, but never the check of a result", async () => {
    const service = open({ maxWorkers: 1 });
    const stop = new AbortController();
    const variables = ' '.repeat(8 * MIB);
    const ask = (tenant: string) => service.render(user(tenant, { signal: stop.signal }), minimind, { variables }, 100);
    const all = Array.from({ length: 8 }, () => ask('a'));
    const result = service.check(user('a'), ' '.repeat(8 * MIB));
    const other = ask('b');
    assert.equal(failureOf(await other), 'invalid-argument');
    assert.equal(failureOf(await result), 'invalid-argument');
    const tags = (await Promise.all(all)).map(failureOf);
    assert.deepEqual([...new Set(tags)].sort(), ['invalid-argument', 'unavailable']);
    // The tenant's share, 64 MiB, holds three of the eight calls, each of slightly more than 16 MiB.
    assert.equal(tags.filter((tag) => tag === 'unavailable').length, 5);
  });

  it('removes cancelled calls from the queue, and completes the one that has begun', async () => {
    const service = open({ maxWorkers: 1 });
    await service.warm([stories.directory]);
    const stop = new AbortController();
    const ask = () => service.tokenize(user('a', { signal: stop.signal }), stories, han(LONGEST), false);
    const asked = [ask(), ask(), ask()];
    stop.abort();
    assert.deepEqual((await Promise.all(asked)).map(failureOf), ['ok', 'cancelled', 'cancelled']);
    assert.equal(failureOf(await service.tokenize(user(), stories, han(200), false)), 'ok');
  });

  it('ends only the call that takes too long, and charges at most the time limit', async () => {
    // The loop finds a deadline that is long enough for a short text on this machine, and too short for the longest.
    for (let deadlineMs = 20; ; deadlineMs *= 3) {
      const service = open({ maxWorkers: 1, deadlineMs });
      const charged: number[] = [];
      const account = new Account({ charge: (ms) => charged.push(ms), usedUp: () => false });
      const small = () => service.check(user(), `[${' '.repeat(5000)}]`);
      const large = `${'['.repeat(2 * MIB)}${']'.repeat(2 * MIB)}`;
      const before = await small();
      const outcomes = [before, ...(await Promise.all([service.check(user('a', { account }), large), small()]))];
      if (deadlineMs < 200 && [outcomes[0], outcomes[2]].some((outcome) => outcome && failureOf(outcome) !== 'ok'))
        continue;
      assert.deepEqual(outcomes.map(failureOf), ['ok', 'limit-exceeded', 'ok']);
      assert.ok(charged.length === 1 && (charged[0] ?? 0) <= deadlineMs, `${charged} of ${deadlineMs} ms`);
      break;
    }
  });

  it('reads the files of a model that is added later, and answers `unavailable` for a missing folder', async () => {
    const service = open({ maxWorkers: 1 });
    await service.warm([stories.directory]);
    assert.equal(failureOf(await service.tokenize(user(), minimind, 'a '.repeat(500), false)), 'ok');
    assert.equal(failureOf(await service.tokenize(user(), stories, 'a '.repeat(500), false)), 'ok');
    const missingModel = { ...stories, directory: path.join(stories.directory, 'nowhere') };
    assert.equal(failureOf(await service.tokenize(user(), missingModel, 'a '.repeat(500), false)), 'unavailable');
    assert.equal(failureOf(await service.tokenize(user(), stories, 'a '.repeat(500), false)), 'ok');
  });

  it('answers with closed after it is closed', async () => {
    const service = open({ maxWorkers: 1 });
    const pending = [1, 2].map(() => service.tokenize(user(), stories, han(LONGEST), false));
    await service.close();
    assert.deepEqual((await Promise.all(pending)).map(failureOf), ['closed', 'closed']);
    assert.equal(failureOf(await service.check(user(), ' '.repeat(5000))), 'closed');
    assert.equal(service.workers, 0);
  });
});

describe('a pool of workers', () => {
  it('answers the jobs for which no thread can be started', async () => {
    const pool = new WorkerPool<string, string>({
      // For this program, Node throws in the same place as when the kernel refuses a thread.
      program: new URL('https://127.0.0.1/worker.js'),
      noun: 'the text',
      heapMb: 16,
      readable: () => [],
      maxWorkers: 1,
      idleMs: 1000,
      deadlineMs: 1000,
      maxBytes: MIB,
      endCancelled: false,
    });
    const outcomes = await Promise.all(['a', 'b'].map((request) => pool.run({ ...user(), bytes: 1, request })));
    assert.deepEqual(outcomes.map(failureOf), ['unavailable', 'unavailable']);
    assert.equal(pool.workers, 0);
    await pool.close();
  });

  it('lets jobs wait for an existing thread when no further thread can start', async () => {
    const paths = ['../workers', '../../gpu-host/protocol', '../../package.json'];
    const code = paths.map((name) => fileURLToPath(new URL(name, import.meta.url)));
    let threads = 0;
    const pool: WorkerPool<string, string> = new WorkerPool<string, string>({
      program: new URL('../workers/fixtures/echo.ts', import.meta.url),
      noun: 'the text',
      heapMb: 256,
      maxWorkers: 2,
      idleMs: 1000,
      deadlineMs: 60_000,
      maxBytes: MIB,
      endCancelled: false,
      // Throws before the second thread starts, as if the kernel refused that thread.
      readable: () => {
        if (pool.workers > 0) throw new Error('the kernel has no more threads');
        threads += 1;
        return code;
      },
    });
    const asked = ['a', 'a', 'b', 'c'].map((tenant) => pool.run({ ...user(tenant), bytes: 1, request: tenant }));
    // The first thread now ends after its current job. A second thread can start after that.
    pool.renew();
    assert.deepEqual((await Promise.all(asked)).map(value), ['a', 'a', 'b', 'c']);
    assert.equal(threads, 2);
    await pool.close();
  });
});
