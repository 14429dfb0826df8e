import { SPANS, type UsageRow } from '../../app/resources/quotas.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { duration, number } from '../format.ts';

export const usage = defineCommand({
  name: 'usage',
  summary: 'Show usage: invocations, tokens, GPU and CPU time',
  description:
    'Shows usage by hour, day or month in UTC, by default from the start of this month to now. Spans without usage are left out.',
  options: [
    { flags: '--from <time>', help: 'begin: a date or a time in ISO 8601', parse: parseTime },
    { flags: '--to <time>', help: 'end, in the same formats (default: now)', parse: parseTime },
    { flags: '--by <span>', help: 'length of a row’s time span', choices: SPANS },
    { flags: '--per-function', help: 'a row for each function' },
    { flags: '--csv', help: 'print all numbers as CSV' },
    { flags: '--tenant <tenant>', help: 'another tenant (operators)' },
  ],
  examples: [
    { line: 'pie usage', does: 'shows this month by day' },
    {
      line: 'pie usage --from 2026-11-01 --by hour --per-function --csv > usage.csv',
      does: 'writes a file for a spreadsheet',
    },
  ],
  async run({ options, terminal, signal, connect }) {
    const { csv, ...filters } = options;
    if (csv && terminal.json) throw new Failure('--csv and --json cannot be combined.', { advice: 'Use one of them.' });
    const { client } = await connect();
    const query = { ...filters, signal };
    if (csv) {
      await terminal.text(await client.quotas.usageCsv(query));
      return EXIT.ok;
    }
    const rows = await client.quotas.usage(query);
    terminal.value(rows);
    terminal.table(
      HEADING,
      rows.map((row) => cells(row, query.by === 'hour')),
      'Nothing was used in that time.',
    );
    return EXIT.ok;
  },
});

const HEADING = ['FROM', 'FUNCTION', 'INVOCATIONS', 'FAILED', 'TOKENS IN', 'CACHED', 'OUT', 'GPU', 'CPU', 'PAGE-S'];

function cells(row: UsageRow, byHour: boolean): string[] {
  // Every row begins on a full hour, so leave out the seconds. Rows by day or month begin at midnight: leave out the time, too.
  const at = row.at.replace(/:00(\.000)?Z$/, 'Z');
  return [
    byHour ? at : at.replace('T00:00Z', ''),
    row.function ?? 'all',
    number(row.invocations),
    number(row.failed),
    number(row.inputTokens),
    number(row.cachedTokens),
    number(row.outputTokens),
    duration(row.gpuMs),
    duration(row.cpuMs),
    number(row.pageSeconds),
  ];
}

/** Parses a date or a time; a date means its start in UTC. */
function parseTime(value: string): string {
  const parsed = Date.parse(value);
  if (Number.isFinite(parsed) && /^\d{4}-/.test(value)) return new Date(parsed).toISOString();
  throw new Failure('It must be a date or a time such as 2026-11-20 or 2026-11-20T05:12:00Z.');
}
