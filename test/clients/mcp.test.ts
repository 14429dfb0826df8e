import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';

const BIN = 'gateway/cli/bin.js';

describe('the official MCP client', () => {
  it('lists functions as tools, and calls them over several turns', async () => {
    const platform = await functionsPlatform();
    await Promise.all(['text-completion', 'regex'].map(deployFunction));
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [BIN, 'mcp', 'text-completion', 'regex'],
      env: { ...(process.env as Record<string, string>), PIE_URL: platform.url, PIE_API_KEY: platform.apiKey },
    });
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(transport);
    try {
      assert.equal(client.getServerVersion()?.name, 'pie');
      const { tools } = await client.listTools();
      assert.deepEqual(tools.map(({ name }) => name).toSorted(), ['regex', 'text-completion']);
      assert.ok(tools.every(({ inputSchema }) => inputSchema.type === 'object'));
      let prompt = 'Once upon a';
      for (let turn = 0; turn < 3; turn++) {
        const called = { name: 'text-completion', arguments: { prompt, maxTokens: 4, temperature: 0 } };
        const { content, isError } = await client.callTool(called, undefined, { onprogress: () => undefined });
        assert.ok(!isError && Array.isArray(content), JSON.stringify(content));
        prompt += content[0].text;
      }
      assert.match(prompt, /^Once upon a time, there was a/);
      const refused = await client.callTool({ name: 'text-completion', arguments: { prompt: 3 } });
      assert.ok(refused.isError && Array.isArray(refused.content));
      assert.match(refused.content[0].text, /prompt must be string, not number/);
      await assert.rejects(client.callTool({ name: 'nothing' }), /nothing/);
    } finally {
      await client.close();
    }
  });
});
