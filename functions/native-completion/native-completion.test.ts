import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertStreams, callFunction, failingFunction, refusedInput } from '#test/harness/functions.ts';

describe('native-completion', () => {
  it('gives the text of text-completion, up to a stop token and with a seed', async () => {
    const inputs = [
      { prompt: 'Once upon a time', temperature: 0 },
      { prompt: '', temperature: 0, maxTokens: 40 },
      { prompt: '"Tim" — é\t\n', temperature: 0, maxTokens: 30 },
      { prompt: 'Lily', temperature: 0.75, seed: 7, maxTokens: 30 },
      { prompt: 'Lily', maxTokens: 0 },
      // JSON writes this number with an exponent.
      { prompt: 'Lily', temperature: 1e-7, seed: 7, maxTokens: 30 },
      { prompt: 'Once upon a time', temperature: 0, maxTokens: 10_000_000_000 },
    ];
    const reasons = new Set<string>();
    for (const input of inputs) {
      const native = await callFunction('native-completion', input);
      const scripted = await callFunction('text-completion', input);
      assert.deepEqual(native.output, scripted.output);
      assert.equal(native.messages.join(''), native.output.text);
      reasons.add(native.output.finishReason);
    }
    assert.deepEqual([...reasons].sort(), ['max-tokens', 'stop-token']);
  });

  it('names the limit that ended the text as text-completion does', async () => {
    // The prompt leaves little room in the model's context.
    const prompt = `${'The dog was happy. '.repeat(50)}The dog was`;
    const limited = async (maxTokens?: number) => {
      const input = { prompt, temperature: 0, ...(maxTokens !== undefined && { maxTokens }) };
      const native = await callFunction('native-completion', input);
      const scripted = await callFunction('text-completion', input);
      assert.deepEqual(native.output, scripted.output);
      return native.output;
    };
    const { tokens, finishReason } = await limited();
    assert.equal(finishReason, 'context-length');
    assert.equal((await limited(tokens.length)).finishReason, 'max-tokens');
    assert.equal((await limited(tokens.length + 1)).finishReason, 'context-length');
  });

  it('streams while it decodes', async () => {
    await assertStreams('native-completion', { prompt: 'Lily', temperature: 0, maxTokens: 100 });
  });

  it('reports the reason of a failure, and names the field of a bad input', async () => {
    const error = await failingFunction('native-completion', { prompt: 'word '.repeat(300) });
    assert.match(error.message ?? error.detail, /longer than the model's context/);
    assert.deepEqual(await refusedInput('native-completion', { seed: -1 }), { status: 422, field: '/seed' });
  });
});
