import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Backend } from '#gpu-host/backends/backend.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { readEvents, terminal, text as textOf } from '#test/harness/events.ts';
import { CHAT, countersOf, deployFunction, functionsPlatform, refusedInput } from '#test/harness/functions.ts';

/** Differs from the default of the template, so that no page of another test's chat is in the prefix cache. */
const SYSTEM = 'Towns of Europe';
const QUESTION = 'What is the capital of France?';
const SECOND = 'And of Spain?';
const MAX_TOKENS = 10;
/** The chat up to the first answer, in the format of the model's chat template, written by hand. */
const opening = `<|im_start|>system\n${SYSTEM}<|im_end|>\n<|im_start|>user\n${QUESTION}<|im_end|>\n<|im_start|>assistant\n`;

describe('chat-completion', () => {
  let backend: Backend;
  let tokenizer: Tokenizer;

  before(async () => {
    const { directory } = await pullModel(CHAT);
    tokenizer = await loadTokenizer(directory);
    backend = await createReferenceBackend(await loadModel(directory), { pageSize: 16, pageCount: 16 });
  });
  after(() => backend?.dispose());

  it('answers each turn like the reference, and computes no token twice', async () => {
    const messages = [
      { role: 'system', content: SYSTEM },
      { role: 'user', content: QUESTION },
    ];
    await countersOf(CHAT, { reset: true });
    // The input names no model: the function must choose one that can chat, which the platform's first model cannot.
    const { output, text } = await talk({ messages, talk: true, temperature: 0, maxTokens: MAX_TOKENS }, SECOND);
    const { tokens: computed } = await countersOf(CHAT);

    const first = await referenceAnswer(opening);
    const second = await referenceAnswer(
      `${opening}${first}<|im_end|>\n<|im_start|>user\n${SECOND}<|im_end|>\n<|im_start|>assistant\n`,
    );
    assert.deepEqual(output.messages, [
      ...messages,
      { role: 'assistant', content: first },
      { role: 'user', content: SECOND },
      { role: 'assistant', content: second },
    ]);
    assert.equal(text, first + second);
    // The device computed all tokens but the last, which no token follows.
    assert.equal(computed, referenceTokens.length - 1);
  });

  it('names the field of a bad input', async () => {
    const messages = [{ role: 'robot', content: 'Hello' }];
    assert.deepEqual(await refusedInput('chat-completion', { messages }), { status: 422, field: '/messages/0/role' });
  });

  /** The tokens of the whole conversation after the latest answer of the reference. */
  let referenceTokens: number[] = [];

  /** The greedy continuation of a text by the float64 reference. */
  async function referenceAnswer(text: string): Promise<string> {
    const prompt = [...tokenizer.encode(text, { special: true })];
    const answer: number[] = [];
    let cached = 0;
    while (answer.length < MAX_TOKENS) {
      const inputs = Uint32Array.from([...prompt, ...answer].slice(cached));
      const slots = inputs.map((_, i) => cached + i);
      const [output] = await backend.forward([
        {
          inputs: { kind: 'tokens', tokens: inputs },
          positions: slots,
          context: Uint32Array.from({ length: cached }, (_, i) => i),
          mask: 'causal',
          writes: slots,
          output: { kind: 'top', rows: 1, topK: 1 },
        },
      ]);
      assert.ok(output?.kind === 'top');
      const [token = 0] = output.tokens;
      if (tokenizer.special.eos.includes(token)) break;
      cached += inputs.length;
      answer.push(token);
    }
    referenceTokens = [...prompt, ...answer];
    return tokenizer.decode(answer);
  }

  /** Invokes the function, sends the further messages, and closes the session. */
  async function talk(
    input: object,
    ...more: readonly string[]
  ): Promise<{ output: { messages: object[] }; text: string }> {
    const platform = await functionsPlatform();
    await deployFunction('chat-completion');
    const post = (where: string, body: object) =>
      platform.fetch(where, {
        method: 'POST',
        headers: { 'content-type': 'application/json', prefer: 'respond-async' },
        body: JSON.stringify(body),
      });
    const location = (await post('/v1/functions/chat-completion/invocations', input)).headers.get('location') ?? '';
    for (const text of more) assert.equal((await post(`${location}/messages`, { text })).status, 202);
    assert.equal((await post(`${location}/messages`, { close: true })).status, 202);
    const events = await readEvents(await platform.fetch(`${location}/events`));
    const end = terminal(events);
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    return { output: end?.data.output, text: textOf(events) };
  }
});
