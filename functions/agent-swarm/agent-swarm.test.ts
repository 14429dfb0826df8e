import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction } from '#test/harness/functions.ts';

describe('agent-swarm', () => {
  it('writes the same text with four agents and 32 messages as one inferlet alone', async () => {
    const prompt = 'One day, a boy named Tom';
    const swarm = await callFunction('agent-swarm', { prompt, maxTokens: 5 });
    const alone = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 32 * 5 });
    assert.equal(swarm.output.messages, 32);
    assert.equal(swarm.output.agents, 4);
    // Each of the four agents received the 24 messages of the others.
    assert.deepEqual(swarm.output.heard, [24, 24, 24, 24]);
    assert.deepEqual(
      swarm.messages.map((message) => JSON.parse(message).agent),
      Array.from({ length: 32 }, (_, turn) => turn % 4),
    );
    assert.equal(swarm.output.text, alone.output.text);
  });
});
