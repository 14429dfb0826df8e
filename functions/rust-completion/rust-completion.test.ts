import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertStreams, callFunction, failingFunction, refusedInput } from '#test/harness/functions.ts';

describe('rust-completion', () => {
  it('gives the same results as text-completion, with its samplers and for every finish reason', async () => {
    const whole = await callFunction('text-completion', { prompt: 'Once upon a time', temperature: 0, maxTokens: 24 });
    // This stop string reaches from the middle of one word to the middle of the next.
    const stop = /[a-z]{2} [a-z]{2}/.exec(whole.output.text.slice(12))?.[0];
    assert.ok(stop);
    const inputs = [
      { prompt: 'Once upon a time', temperature: 0 },
      { prompt: '', temperature: 0, maxTokens: 40 },
      { prompt: '"Tim" — é\t\n', temperature: 0, maxTokens: 30 },
      { prompt: 'Lily', temperature: 0.75, topP: 0.9, topK: 50, minP: 0.01, seed: 4294967295, maxTokens: 30 },
      { prompt: 'Once upon a time', temperature: 0, maxTokens: 24, stop },
      { prompt: 'Once upon a time', temperature: 0, maxTokens: 24, stop: ['nowhere', stop] },
      { prompt: 'Lily', temperature: 1.5, topK: 50, seed: 3, model: 'tiny' },
      { prompt: 'Lily', maxTokens: 0 },
    ];
    const reasons = new Set<string>();
    for (const input of inputs) {
      const compiled = await callFunction('rust-completion', input);
      const scripted = await callFunction('text-completion', input);
      assert.deepEqual(compiled.output, scripted.output);
      assert.equal(compiled.messages.join(''), compiled.output.text);
      reasons.add(compiled.output.finishReason);
    }
    assert.deepEqual([...reasons].sort(), ['context-length', 'max-tokens', 'stop-string', 'stop-token']);
  });

  it('streams while it decodes', async () => {
    await assertStreams('rust-completion', { prompt: 'Lily', temperature: 0, maxTokens: 100 });
  });

  it('reports the reason of a failure, and names the field of a bad input', async () => {
    const error = await failingFunction('rust-completion', { prompt: 'word '.repeat(300) });
    assert.match(error.message ?? error.detail, /longer than the model's context/);
    assert.deepEqual(await refusedInput('rust-completion', { seed: -1 }), { status: 422, field: '/seed' });
  });
});
