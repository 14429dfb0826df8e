/** `node functions/mcp-agent/testing/serve.ts [port]`: an MCP server with two tools, for trying the inferlet. */
import { McpServer } from './mcp-server.ts';
import { tools } from './tools.ts';

const server = await McpServer.start(tools, Number(process.argv[2] ?? 8899));
console.log(`${tools.map(({ name }) => name).join(', ')} at ${server.url}`);
