import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { counted } from '../format.ts';
import { version } from '../paths.ts';
import { parseTime } from './invoke.ts';

const DEFAULT_DEADLINE_MS = 600_000;
/** Concurrent calls of a client. The tenant's quotas apply as well. */
const MAX_REQUESTS = 64;
/** Time for the client to read the last answers after the connection has ended. */
const LAST_ANSWERS_MS = 1000;

export const mcp = defineCommand({
  name: 'mcp',
  summary: 'Offer functions as tools of an MCP server',
  description:
    'Serves the Model Context Protocol on standard input and output, for the configuration of an MCP client: each function is a tool with its ' +
    'input schema, and a call invokes it. Ends when the client closes the input; calls that run are then cancelled.',
  arguments: [
    {
      name: 'functions',
      help: "names of the functions to offer (default: all, without those behind the routes of OpenAI's and Anthropic's APIs)",
      required: false,
      rest: true,
    },
  ],
  options: [
    {
      flags: '--cancel-after <time>',
      help: 'end a call after this time, without waits for a person: 90, 30s, 5m, 1h (default: 10m)',
      parse: parseTime,
    },
  ],
  examples: [
    { line: 'pie mcp', does: 'offers all functions of the key in PIE_API_KEY or credentials.json' },
    { line: 'pie mcp rag web-agent', does: 'offers two of them' },
    {
      line: 'claude mcp add pie -- node /path/to/the/clone/gateway/cli/bin.js mcp',
      does: 'tells an MCP client of it, here Claude Code',
    },
  ],
  async run({ args, options, terminal, signal, connect }) {
    const { Connection } = await import('../mcp/connection.ts');
    const { FunctionTools } = await import('../mcp/tools.ts');
    const { client, credentials } = await connect();
    const tools = new FunctionTools(client, {
      only: args,
      deadlineMs: options.cancelAfter ?? DEFAULT_DEADLINE_MS,
      version: version(),
      progress: (params) => connection.notify('notifications/progress', params),
    });
    const connection = new Connection(process.stdout, tools, MAX_REQUESTS);
    const names = await tools.names(signal);
    const missing = args.filter((name) => !names.includes(name));
    if (missing.length > 0) {
      throw new Failure(`There is no function ${missing.join(', ')} to offer.`, {
        exitCode: EXIT.refused,
        code: 'unknown-function',
        why: 'It is not deployed, its alias `live` serves no version, or it is quarantined.',
        advice: 'See `pie list`.',
      });
    }
    terminal.note(
      `Offering ${counted(names.length, 'function')} of ${credentials.url} as MCP tools on standard input and output.`,
    );
    try {
      await connection.serve(process.stdin, signal);
      return EXIT.ok;
    } finally {
      // Answers that the client has not read would keep the process alive, even after a destroy() of standard output.
      setTimeout(() => process.exit(), LAST_ANSWERS_MS).unref();
    }
  },
});
