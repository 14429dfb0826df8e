import { LEVELS, type LogEntry, STATUSES } from '../../app/control.ts';
import { durationMs, timeMs } from '../../app/http/durations.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

export const logs = defineCommand({
  name: 'logs',
  summary: 'Show the log lines of functions',
  description:
    'Shows the log lines of a function, including its console and the errors of failed invocations; without a name, those of all functions. About 2,000 lines of each function are kept for a week, unless pie.toml sets other limits.',
  arguments: [{ name: 'function', help: 'name of the function (default: all functions)', required: false }],
  options: [
    { flags: '-f, --follow', help: 'wait for new lines and show them' },
    {
      flags: '--since <time>',
      help: 'only lines after this time: 10m, 2h or 1d before now, or ISO 8601',
      parse: checkedTime,
    },
    { flags: '--until <time>', help: 'only lines before this time, in the same formats', parse: checkedTime },
    { flags: '--status <state>', help: 'only invocations that are in this state now', choices: STATUSES },
    { flags: '--search <text>', help: 'only lines with this text; ignores case' },
    { flags: '--level <level>', help: 'only this level and more severe ones', choices: LEVELS },
    { flags: '--invocation <id>', help: 'only this invocation' },
    { flags: '-l, --limit <lines>', help: 'most past lines to show (default: 200)', parse: lineCount },
  ],
  examples: [
    { line: 'pie logs text-completion --limit 50', does: 'shows the newest 50 lines' },
    {
      line: 'pie logs text-completion --since 10m --status failed',
      does: 'shows lines of invocations that failed, from the last ten minutes',
    },
    { line: 'pie logs --follow --level warn', does: 'follows the warnings and errors of all functions' },
  ],
  async run({ args: [name = null], options, terminal, signal, connect }) {
    const { client } = await connect();
    const { follow, ...filters } = options;
    const query = { ...filters, signal };
    if (follow && query.until !== undefined)
      throw new Failure('--follow and --until cannot be combined: live lines have no end.', {
        advice: 'Leave one of them out.',
      });
    const show = (entry: LogEntry) => {
      terminal.value(entry);
      const where = name === null ? `${entry.function}  ${entry.invocation}` : entry.invocation;
      terminal.print(`${entry.time}  ${entry.level.padEnd(5)}  ${where}  ${entry.message}`);
    };
    if (!follow) {
      const entries = await client.logs(name, query);
      for (const entry of entries) show(entry);
      if (entries.length === 0) terminal.note('There is no such line.');
      return EXIT.ok;
    }
    try {
      for await (const entry of client.followLogs(name, query)) show(entry);
    } catch (error) {
      // Ctrl-C is the normal end of following.
      if (!signal.aborted) throw error;
    }
    return EXIT.ok;
  },
});

function lineCount(value: string): number {
  const count = Number(value);
  if (Number.isInteger(count) && count > 0) return count;
  throw new Failure('It must be a whole number above 0.');
}

/** Checks the text of a time and returns it unchanged: the gateway subtracts durations from its own clock. */
function checkedTime(value: string): string {
  const isDuration = /[a-z]$/.test(value);
  const ms = isDuration ? durationMs(value) : timeMs(value, 0);
  if (ms !== null) return value;
  throw new Failure('It must be a time before now (30s, 10m, 2h, 1d), or ISO 8601 (2026-11-20T05:12:00Z).');
}
