import { type Command, text } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, bytes } from '../format.ts';

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
const name = { name: 'function', help: 'name of the function', required: true } as const;

/** What is deployed. */
export const list: Command = {
  name: 'list',
  summary: 'List the functions',
  examples: [{ line: 'pie list', does: 'name, version, size and age of each' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const functions = await client.functions({ signal });
    terminal.value(functions);
    terminal.table(
      ['NAME', 'VERSION', 'SIZE', 'DEPLOYED', 'DESCRIPTION'],
      functions.map((f) => [
        f.name,
        f.version,
        bytes(f.componentBytes),
        ago(f.createdAt),
        `${f.manifest.description ?? ''}${f.platform === true ? ' (the platform’s)' : ''}`.trim(),
      ]),
      'No function is deployed yet. Next: pie deploy functions/text-completion',
    );
    return EXIT.ok;
  },
};

/** The history of a function. */
export const versions: Command = {
  name: 'versions',
  summary: 'List the versions of a function, newest first',
  arguments: [name],
  examples: [{ line: 'pie versions text-completion', does: 'invoke one with name@version' }],
  async run({ args, terminal, signal, connect }) {
    const { client } = await connect();
    const found = await client.versions(args[0] ?? '', { signal });
    terminal.value(found);
    terminal.table(
      ['VERSION', 'SIZE', 'DEPLOYED'],
      found.map((f) => [f.version, bytes(f.componentBytes), ago(f.createdAt)]),
      'There are none.',
    );
    return EXIT.ok;
  },
};

/** Takes a function away. */
export const remove: Command = {
  name: 'remove',
  summary: 'Remove a function with all its versions',
  arguments: [name],
  examples: [{ line: 'pie remove hello', does: 'invocations that run go on' }],
  async run({ args, terminal, signal, connect }) {
    const { client } = await connect();
    await client.removeFunction(args[0] ?? '', { signal });
    terminal.value({ removed: args[0] });
    terminal.print(`Removed ${args[0]}.`);
    return EXIT.ok;
  },
};

/** What a function's invocations wrote. */
export const logs: Command = {
  name: 'logs',
  summary: 'Show what a function wrote into its log',
  arguments: [name],
  options: [
    { flags: '-f, --follow', help: 'go on with new lines' },
    { flags: '--level <level>', help: 'this level and worse', choices: LEVELS },
    { flags: '--invocation <id>', help: 'of one invocation only' },
    { flags: '-l, --limit <lines>', help: 'past lines at most', parse: lineCount },
  ],
  examples: [
    { line: 'pie logs text-completion --limit 50', does: 'the newest 50 lines' },
    { line: 'pie logs text-completion --follow --level warn', does: 'warnings as they come' },
  ],
  async run({ args, options, terminal, signal, connect }) {
    const { client } = await connect();
    const level = LEVELS.find((candidate) => candidate === options.level);
    const invocation = text(options, 'invocation');
    const query = {
      signal,
      ...(level === undefined ? {} : { level }),
      ...(invocation === undefined ? {} : { invocation }),
      ...(typeof options.limit === 'number' ? { limit: options.limit } : {}),
    };
    const show = (entry: { time: string; level: string; invocation: string; message: string }) => {
      terminal.value(entry);
      terminal.print(`${entry.time}  ${entry.level.padEnd(5)}  ${entry.invocation}  ${entry.message}`);
    };
    if (options.follow !== true) {
      const entries = await client.logs(args[0] ?? '', query);
      for (const entry of entries) show(entry);
      if (entries.length === 0) terminal.note('Nothing was logged yet.');
      return EXIT.ok;
    }
    try {
      for await (const entry of client.followLogs(args[0] ?? '', query)) show(entry);
    } catch (error) {
      // Ctrl-C is how following ends.
      if (!signal.aborted) throw error;
    }
    return EXIT.ok;
  },
};

function lineCount(value: string): number {
  const count = Number(value);
  if (Number.isInteger(count) && count > 0) return count;
  throw new Failure('It must be a whole number above 0.');
}
