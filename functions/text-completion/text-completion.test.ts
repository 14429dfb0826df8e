import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, refusedInput } from '#test/harness/functions.ts';

describe('text-completion', () => {
  it('gives the text of llama2.c at temperature 0', async () => {
    const { output, messages } = await callFunction('text-completion', { prompt: '', temperature: 0, maxTokens: 11 });
    // The tokens that llama2.c generates with this model.
    assert.deepEqual(output.tokens, [9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257]);
    assert.equal(messages.join(''), output.text);
  });

  it('ends at a stop string that crosses token borders', async () => {
    const whole = await callFunction('text-completion', { prompt: 'Once upon a time', temperature: 0, maxTokens: 24 });
    const { text, tokens } = whole.output;
    // The end of one word and the beginning of the next, so that the stop string crosses a border between tokens.
    const stop = /[a-z]{2} [a-z]{2}/.exec(text.slice(12))?.[0] ?? '';
    assert.notEqual(stop, '');
    const cut = await callFunction('text-completion', {
      prompt: 'Once upon a time',
      temperature: 0,
      maxTokens: 24,
      stop,
    });
    assert.equal(cut.output.finishReason, 'stop-string');
    assert.equal(cut.output.text, text.slice(0, text.indexOf(stop)));
    assert.equal(cut.messages.join(''), cut.output.text);
    assert.ok(cut.output.tokens.length < tokens.length);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('text-completion', { temperature: -1 }), {
      status: 422,
      field: '/temperature',
    });
  });
});
