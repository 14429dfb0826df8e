import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, countersOf, failingFunction, STORIES } from '#test/harness/functions.ts';
import { deployGranting } from '#test/harness/tool-server.ts';
import { McpServer } from './testing/mcp-server.ts';
import { referringTools, tools } from './testing/tools.ts';

describe('mcp-agent', () => {
  it('completes a conversation with an MCP server, and computes no token twice', async () => {
    await using server = await McpServer.start(tools);
    await deployGranting('mcp-agent', server.host);
    const before = await countersOf(CHAT, { reset: true });
    const { output, messages } = await callFunction('mcp-agent', {
      url: server.url,
      task: 'What is 2 plus 40? Paint the car in it.',
      script: [
        '{"tool": "add", "arguments": {"a": 2, "b": 40}}',
        '{"tool": "paint", "arguments": {"thing": "car", "colors": ["red", "blue"]}}',
        '{"answer": "It is 42, and there is no car."}',
      ],
    });
    const { tokens, prefix } = await countersOf(CHAT);
    assert.equal(output.answer, 'It is 42, and there is no car.');
    assert.deepEqual(
      messages.map((message) => JSON.parse(message)).map(({ tool, content, isError }) => [tool, content, isError]),
      [
        ['add', '42', false],
        ['paint', 'Error: there is no car', true],
      ],
    );
    assert.deepEqual(server.methods, [
      'initialize',
      'notifications/initialized',
      // The server lists one tool a page, and it has two.
      'tools/list',
      'tools/list',
      'tools/call',
      'tools/call',
      'DELETE',
    ]);
    // The device computed each token of the context once, or the prefix cache supplied it; no token follows the last one, so it was not computed.
    assert.equal(tokens + prefix.hitTokens - before.prefix.hitTokens, output.tokens - 1);
  });

  it('cannot write arguments that the schemas forbid', async () => {
    await using server = await McpServer.start(tools);
    await deployGranting('mcp-agent', server.host);
    const { message } = await failingFunction('mcp-agent', {
      url: server.url,
      task: 'Paint.',
      script: ['{"tool": "paint", "arguments": {"thing": "boat", "colors": ["red"]}}'],
    });
    assert.match(message, /the grammar does not allow/);
    assert.deepEqual(server.calls, []);
    assert.equal(server.methods.at(-1), 'DELETE');
  });

  it('calls tools whose schemas refer to their own parts', async () => {
    await using server = await McpServer.start([...tools, ...referringTools]);
    await deployGranting('mcp-agent', server.host);
    const arguments_ = [
      { to: { x: 3, y: -4 }, $ref: '#/$defs/Point' },
      { name: 'a', children: [{ name: 'b', children: [] }] },
      { a: 5, b: 6 },
    ];
    const script = ['move', 'plant', 'add'].map((tool, i) => JSON.stringify({ tool, arguments: arguments_[i] }));
    const { output } = await callFunction('mcp-agent', {
      url: server.url,
      task: 'Go.',
      script: [...script, '{"answer": "Done."}'],
    });
    assert.equal(output.answer, 'Done.');
    assert.deepEqual(
      server.calls.map((call) => call.arguments),
      arguments_,
    );
    assert.deepEqual(server.refused, []);
    const wrong = ['{"tool": "move", "arguments": {"to": {"x": 3, "z": 1}, "$ref": "#/$defs/Point"}}'];
    const { message } = await failingFunction('mcp-agent', { url: server.url, task: 'Go.', script: wrong });
    assert.match(message, /the grammar does not allow/);
  });

  it('refuses malformed and unexpected replies of the server, and ends the session', async () => {
    await using server = await McpServer.start(tools);
    await deployGranting('mcp-agent', server.host);
    const script = ['{"tool": "add", "arguments": {"a": 2, "b": 40}}'];
    const malformed = /^unavailable: .* in a form that the protocol does not have\.$/;
    const wrong: readonly (readonly [string, object | string, RegExp])[] = [
      [
        'initialize',
        { result: { protocolVersion: '2024-11-05' } },
        /^unsupported: .* revision "2024-11-05"; this client/,
      ],
      ['tools/list', { result: { tools: { name: 'add' } } }, malformed],
      ['tools/list', { result: { tools: [{ name: 'add' }] } }, malformed],
      ['tools/list', { result: null }, malformed],
      ['tools/list', 'null', malformed],
      ['tools/list', { result: { tools: [] } }, /^unsupported: The MCP server at .* offers no tools\./],
      ['tools/list', { error: { code: -1, message: 'not today' } }, /^unavailable: tools\/list: not today \(-1\)/],
      ['tools/call', { result: { content: [null] } }, malformed],
      ['tools/call', { result: {} }, malformed],
      ['tools/call', '{"id":', /^unavailable: .* sent an event that is not JSON: /],
    ];
    for (const [method, reply, expected] of wrong) {
      server.replies = { [method]: reply };
      assert.match(
        (await failingFunction('mcp-agent', { url: server.url, task: 'Add.', script })).message,
        expected,
        JSON.stringify(reply),
      );
      assert.equal(server.methods.at(-1), 'DELETE');
    }
  });

  it('ends the session of a server that refuses to begin', async () => {
    await using server = await McpServer.start(tools);
    server.refusesToBegin = true;
    await deployGranting('mcp-agent', server.host);
    const { message } = await failingFunction('mcp-agent', { url: server.url, task: 'Add.' });
    assert.match(message, /^unavailable: .* answered 500 to a notification/);
    assert.deepEqual(server.methods, ['initialize', 'notifications/initialized', 'DELETE']);
  });

  it('keeps its answer when the server breaks off instead of ending the session', async () => {
    await using server = await McpServer.start(tools);
    server.breaksAtEnd = true;
    await deployGranting('mcp-agent', server.host);
    const { output } = await callFunction('mcp-agent', {
      url: server.url,
      task: 'What is 2 plus 40?',
      script: ['{"answer": "42"}'],
    });
    assert.equal(output.answer, '42');
    assert.equal(server.methods.at(-1), 'DELETE');
  });

  it('makes only valid calls with a small and a larger model', async () => {
    await using server = await McpServer.start(tools);
    await deployGranting('mcp-agent', server.host);
    for (const model of [STORIES, CHAT]) {
      for (const task of ['Add 1 and 2.', 'Paint the house red.']) {
        const input = { url: server.url, model, task, minCalls: 1, maxSteps: 1, maxTokens: 64 };
        assert.match(
          (await failingFunction('mcp-agent', input)).message,
          /limit-exceeded: There is no answer after 1 steps/,
        );
      }
    }
    assert.equal(server.calls.length, 4);
    assert.deepEqual(server.refused, []);
  });
});
