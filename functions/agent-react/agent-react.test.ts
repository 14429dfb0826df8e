import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, countersOf, failingFunction, refusedInput, STORIES } from '#test/harness/functions.ts';
import { deployGranting, ToolServer } from '#test/harness/tool-server.ts';

const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const hermes = (name: string, args: object) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(args)}}\n</tool_call>`;

/** Returns a function whose promise resolves once `count` callers wait. */
function barrier(count: number): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let waiting = 0;
  return () => {
    if (++waiting === count) resolve();
    return promise;
  };
}

describe('agent-react', () => {
  it('calls tools over HTTP in parallel and computes no token twice (chat)', async () => {
    const together = barrier(2);
    await using server = await ToolServer.start({
      weather: async ({ city: name }) => {
        // The test's server answers neither request before both have arrived.
        await together();
        return { city: name, celsius: name === 'Rome' ? 21 : 12 };
      },
    });
    await deployGranting('agent-react', server.host);
    const before = await countersOf(CHAT, { reset: true });
    const { output, messages } = await callFunction('agent-react', {
      question: 'Which of Rome and Oslo is warmer?',
      tools: [{ name: 'weather', description: 'The weather now', parameters: city, url: server.url('weather') }],
      script: [
        `I ask for both.\n${hermes('weather', { city: 'Rome' })}\n${hermes('weather', { city: 'Oslo' })}`,
        `Once more.\n${hermes('weather', { town: 'Rome' })}`,
        'Rome, by nine degrees.',
      ],
    });
    const { tokens, prefix } = await countersOf(CHAT);
    assert.equal(output.answer, 'Rome, by nine degrees.');
    const steps = messages.map((message) => JSON.parse(message));
    assert.deepEqual(
      steps.map(({ thought, calls }) => [thought, calls.map(({ content }: { content: string }) => content)]),
      [
        ['I ask for both.', ['{"city":"Rome","celsius":21}', '{"city":"Oslo","celsius":12}']],
        ['Once more.', ['Error: invalid-argument: city is missing']],
        ['Rome, by nine degrees.', []],
      ],
    );
    assert.deepEqual(server.requests.map(({ body }) => body.city).sort(), ['Oslo', 'Rome']);
    // The device computed each token of the context once, or the prefix cache supplied it. The context lacks the token that ended the last turn.
    assert.equal(tokens + prefix.hitTokens - before.prefix.hitTokens, output.tokens);
  });

  it('calls one tool a turn with a model that has no chat template', async () => {
    await using server = await ToolServer.start({ double: ({ n }) => 2 * n });
    await deployGranting('agent-react', server.host);
    const before = await countersOf(STORIES, { reset: true });
    const parameters = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
    const { output } = await callFunction('agent-react', {
      question: 'Twice 21?',
      model: STORIES,
      tools: [{ name: 'double', parameters, url: server.url('double') }],
      script: [' Easy.\nAction: double(21) Observation: 7', ' I know.\nAnswer: 42'],
    });
    const { tokens, prefix } = await countersOf(STORIES);
    assert.equal(output.answer, '42');
    assert.deepEqual(server.requests, [{ path: 'double', body: { n: 21 } }]);
    assert.ok(
      tokens + prefix.hitTokens - before.prefix.hitTokens <= output.tokens,
      `${tokens} tokens computed for a text of ${output.tokens}`,
    );
  });

  it('tells the model the status when a tool fails', async () => {
    await using server = await ToolServer.start({});
    await deployGranting('agent-react', server.host);
    const { messages } = await callFunction('agent-react', {
      question: 'Anything?',
      model: STORIES,
      tools: [{ name: 'look', url: server.url('look') }],
      script: ['\nAction: look()', '\nAnswer: no'],
    });
    const [{ ok, content }] = JSON.parse(messages[0] ?? '').calls;
    assert.deepEqual([ok, content], [false, 'Error: the tool answered 404.']);
  });

  it("ends after `maxSteps` steps when no grant allows the tool's host", async () => {
    await deployGranting('agent-react', '127.0.0.1:1');
    const error = await failingFunction('agent-react', {
      question: 'Anything?',
      model: STORIES,
      maxSteps: 2,
      tools: [{ name: 'look', url: 'http://127.0.0.1:9/look' }],
      script: ['\nAction: look()', '\nAction: look()'],
    });
    assert.match(error.message, /limit-exceeded: There is no answer after 2 steps/);
  });

  it('names the field of a bad input', async () => {
    const tools = [{ name: 'no name', url: 'http://127.0.0.1:9/' }];
    assert.equal((await refusedInput('agent-react', { question: 'x', tools })).field, '/tools/0/name');
  });
});
