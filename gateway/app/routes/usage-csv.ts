import { type UsageRow, UsageRowSchema } from '../schemas/quotas.ts';

const COLUMNS = UsageRowSchema.keyof().options;

/** Usage as CSV (RFC 4180) with a header line. No value has a comma or a quote: names of tenants and functions are plain. */
export function usageCsv(rows: readonly UsageRow[]): string {
  const lines = [COLUMNS.join(','), ...rows.map((row) => COLUMNS.map((column) => row[column] ?? '').join(','))];
  return `${lines.join('\r\n')}\r\n`;
}
